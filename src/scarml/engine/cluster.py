"""One cluster: its controller, its nodes wherever they are, and the run folder. Actions out, events in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from scarml.checkpoint.version_index import Version
from scarml.control import messages as m
from scarml.control.controller import Controller
from scarml.control.history import Record
from scarml.control.view import NodeId
from scarml.engine.scheduler import Scheduler
from scarml.errors import DamagedError, RunInUseError, StoreError, SupersededError
from scarml.storage.compaction import Limits
from scarml.storage.run_folder import RunFolder
from scarml.storage.tidying import Tidying
from scarml.storage.unit import FullSave

__all__ = ["Cluster", "Nodes"]


class Nodes(Protocol):
    """The nodes of a cluster, as its controller's process reaches them."""

    def send(self, source: NodeId, name: NodeId, order: m.NodeOrder) -> None:
        """Bring an order to a node, in order."""
        ...

    def start(self, name: NodeId, kind: m.NodeKind) -> None:
        """Start a node; `NodeJoined` or `NodeLost` follows."""
        ...

    def stop(self, name: NodeId) -> None:
        """End a node, if it has not ended."""
        ...


class Cluster:
    """Carries the controller's actions out.

    Args:
        controller: decides.
        nodes: those of its first view are there already.
        open_folder: gives the controller and the compactor each their own way to the run folder.
        scheduler: when and where things run.
        on_record: gets every record of the run's history.
        compaction: when to compact the run folder, and how much at once.
    """

    def __init__(
        self,
        controller: Controller,
        nodes: Nodes,
        open_folder: Callable[[NodeId], RunFolder],
        scheduler: Scheduler,
        on_record: Callable[[Record], None],
        compaction: Limits | None = None,
    ) -> None:
        self.controller = controller
        self.scheduler = scheduler
        self.finished: m.Finish | None = None
        self._nodes = nodes
        self._on_record = on_record
        self._folder = open_folder("controller")
        in_background = partial(scheduler.write, "compactor")
        self._tidying = Tidying(
            open_folder("compactor"), in_background, lambda cause: scheduler.post(m.Superseded(cause)), compaction
        )

    def handle(self, event: m.Event) -> None:
        """Let the controller decide, and carry out what it decides."""
        for action in self.controller.handle(event):
            self._perform(action)

    def _perform(self, action: m.Action) -> None:
        match action:
            case m.Send():
                self._nodes.send("controller", action.node, action.order)
            case m.Report():
                self._on_record(action.record)
                if action.record.name == "save_committed":
                    self._tidying.after_save(self.controller.term, list(self.controller.view.nodes))
            case m.SetTimer():
                self.scheduler.post(m.TimerFired(action.token), action.delay_s)
            case m.StartNode():
                self._nodes.start(action.node, action.kind)
            case m.StopNode():
                self._nodes.stop(action.node)
            case m.CompleteUnit():
                self.scheduler.write("controller", lambda: self._complete_unit(action))
            case m.ClaimTerm():
                self.scheduler.write("controller", lambda: self._claim_term(action.unit))
            case m.Finish():
                self.finished = action

    def _complete_unit(self, action: m.CompleteUnit) -> None:
        v = action.version
        unit = FullSave(v.term, v.commit, v.iteration, action.save_id, action.segments)
        try:
            self._folder.write_unit(unit)
        except SupersededError as e:
            self.scheduler.post(m.Superseded(str(e)))
        except StoreError as e:
            self.scheduler.post(m.UnitFailed(action.save_id, str(e)))
        else:
            self.scheduler.post(m.UnitCommitted(action.save_id))

    def _claim_term(self, version: Version | None) -> None:
        folder, own = self._folder, self.controller.term
        try:
            unit = folder.last_unit(own) if version else None
            if version and (unit is None or (unit.term, unit.commit) != (version.term, version.commit)):
                raise DamagedError(f"the full save of x({version.iteration}) is gone from the store")
            term = folder.claim_term(unit or "new", after=own)
        except (SupersededError, RunInUseError) as e:
            self.scheduler.post(m.Superseded(str(e)))
        except StoreError as e:
            self.scheduler.post(m.TermFailed(str(e)))
        else:
            self.scheduler.post(m.TermClaimed(term))
