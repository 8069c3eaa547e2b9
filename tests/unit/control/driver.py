"""Plays the nodes, the store and the timers of a controller, and watches its invariants at every event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scarml.checkpoint.selection import Checkpoint
from scarml.checkpoint.version_index import Version
from scarml.control import messages as m
from scarml.control.checkpoint_coordinator import SaveStep
from scarml.control.controller import Controller
from scarml.control.stop import HeldOut, Stop
from scarml.control.transitions import State
from scarml.control.view import Layout, NodeId
from scarml.core.block import Field, Table
from scarml.core.model import Context

WAITS_FOR_NODES = (State.INSTALLING, State.COMPUTING, State.COMMITTING)
MAY_HAVE_LOST = (State.NEW, State.COMMITTING, State.DRAINING, State.CLAIMING, State.WAITING, State.FINISHED)
N_SHARDS = 4
N_EXAMPLES = 40


def make_layout(kind: str = "server") -> Layout:
    """``server``: one table at the servers; ``worker``: beside it one at the workers and one that is derived."""
    two = np.arange(8).reshape(4, 2)
    tables = {"w": Table("w", 8, (Field("value"),))}
    partitions: dict[str, list[Any]] = {"w": list(two)}
    if kind == "worker":
        tables["docs"] = Table("docs", 8, (Field("value"),), home="worker")
        tables["counts"] = Table("counts", 2, (Field("value"),), derived=True)
        partitions |= {"docs": list(two), "counts": [np.array([0]), np.array([1])]}
    return Layout(tables, partitions, N_SHARDS, N_EXAMPLES)


class Driver:
    """One controller and its surroundings.

    What is sent to nodes and asked of the engine makes answers, which wait in `inbox` until a test delivers them.
    """

    def __init__(
        self,
        layout: Layout | None = None,
        *,
        servers: int = 3,
        workers: int = 2,
        n_phases: int = 1,
        n_repair_phases: int = 0,
        checkpoint: Checkpoint | None = None,
        stop: Stop | None = None,
        held_out: HeldOut | None = None,
        silence_s: float | None = None,
        replaces: bool = False,
    ) -> None:
        self.layout = layout or make_layout()
        self.controller = Controller(
            self.layout,
            [f"server-{i}" for i in range(servers)],
            [f"worker-{i}" for i in range(workers)],
            n_phases=n_phases,
            n_repair_phases=n_repair_phases,
            seed=0,
            checkpoint=checkpoint or Checkpoint(fraction="1/4", interval_iters=4),
            stop=stop or Stop(max_iters=3),
            held_out=held_out,
            silence_s=silence_s,
            replaces=replaces,
        )
        self.inbox: list[m.Event] = []
        self.history: list[str] = []
        self.records: list[dict[str, Any]] = []
        self.finish: m.Finish | None = None
        self.lost: set[NodeId] = set()
        self.stopped: list[NodeId] = []
        self.loss = 1.0
        self.rmse: Callable[[int], float] = lambda iteration: 1.0
        self.extras: dict[int, Any] = {}
        """Per save what is to be stored beside its blocks."""
        self.distance: Callable[[np.ndarray], np.ndarray] = lambda ids: np.ones(len(ids))
        self.loads: list[tuple[int, NodeId, dict[str, list[int]]]] = []
        self.fetches: list[tuple[int, NodeId, NodeId, dict[str, list[int]]]] = []
        """View, who fetches, from whom, what."""
        self.repairs: list[tuple[int, NodeId, Context, dict[str, list[int]]]] = []
        """View, who works on it, the phase, and what is mended."""
        self._chosen: dict[int, dict[str, list[int]]] = {}
        self._last_commit = 0
        self._prepared_asked: set[tuple[int, int]] = set()

    # ------------------------------------------------------------------------------------------------------ deliveries
    def feed(self, event: m.Event) -> list[str]:
        """Give the controller one event; what it does, in brief."""
        was_over = self.controller.state is State.FINISHED
        actions = self.controller.handle(event)
        assert not (was_over and actions), "something was done after the end"
        for action in actions:
            self._take(action)
        self.check()
        done = [brief(a) for a in actions]
        self.history += done
        return done

    def start(self, **fields: Any) -> list[str]:
        """The engine is ready."""
        return self.feed(m.Start(**{"term": 1, **fields}))

    def deliver(self, kind: type, node: NodeId | None = None) -> list[str]:
        """Every waiting answer of one kind (of one node), in order; what the controller does."""
        now = [e for e in self.inbox if isinstance(e, kind) and node in (None, getattr(e, "node", None))]
        assert now, f"no {kind.__name__} waits; there are {[brief_event(e) for e in self.inbox]}"
        done = []
        for event in now:
            self.inbox.remove(event)
            done += self.feed(event)
        return done

    def run(self, until: Callable[[Driver], bool] | State | None = None, without: tuple[type, ...] = ()) -> Driver:
        """Deliver answers in order until something is so, or nothing waits; never those of the kinds ``without``."""
        for _ in range(5000):
            if (isinstance(until, State) and self.state is until) or (callable(until) and until(self)):
                return self
            event = next((e for e in self.inbox if not isinstance(e, without)), None)
            if event is None:
                assert until is None, f"{until} never happens; the controller waits for {self.state.value}"
                return self
            self.inbox.remove(event)
            self.feed(event)
        raise AssertionError("this never ends")

    def lose(self, *nodes: NodeId) -> list[str]:
        """Nodes die with what they had still to say."""
        done = []
        for node in nodes:
            self.lost.add(node)
            self.inbox = [e for e in self.inbox if getattr(e, "node", None) != node]
            done += self.feed(m.NodeLost(node, "power cut"))
        return done

    def next_is(self, kind: type) -> m.Event:
        """The first waiting answer of a kind, left where it is."""
        return next(e for e in self.inbox if isinstance(e, kind))

    # ---------------------------------------------------------------------------------------------------------- queries
    @property
    def state(self) -> State:
        return self.controller.state

    @property
    def step(self) -> SaveStep:
        return self.controller.saves.step

    @property
    def clock(self) -> Any:
        return self.controller.clock

    @property
    def chosen(self) -> list[dict[str, list[int]]]:
        """Per save what was chosen, in all."""
        return list(self._chosen.values())

    def said(self, name: str) -> list[dict[str, Any]]:
        """The fields of every record of that name."""
        return [r for r in self.records if r["name"] == name]

    def snapshot(self) -> Any:
        """Everything that the controller keeps but its story, to compare."""
        c, saves = self.controller, self.controller.saves
        return repr(
            (
                [c.state, c.term, vars(c.clock), c.view, c.awaited_nodes, c._lost, vars(c._stop), c._verdict],
                [saves.step, saves._save, saves._retries, saves.last_unit, c.recovery.takeovers()],
                vars(c.membership),
            )
        )

    # ---------------------------------------------------------------------------------------------------------- answers
    def _take(self, action: m.Action) -> None:
        match action:
            case m.Send():
                assert action.node not in self.lost, f"{brief(action)} goes to a node that is lost"
                self._answer(action.node, action.order)
            case m.Report():
                self.records.append({"name": action.record.name, **action.record.fields})
            case m.ClaimTerm():
                self.inbox.append(m.TermClaimed(self.controller.term + 1))
            case m.CompleteUnit():
                self.inbox.append(m.UnitCommitted(action.save_id))
            case m.StartNode():
                self.inbox.append(m.NodeJoined(action.node))
            case m.StopNode():
                self.stopped.append(action.node)
            case m.SetTimer():
                assert action.delay_s > 0
                self.inbox.append(m.TimerFired(action.token))
            case m.Finish():
                assert self.finish is None
                self.finish = action

    def _answer(self, node: NodeId, order: m.NodeOrder) -> None:
        view = self.controller.view
        match order:
            case m.InstallView():
                self._install(node, order)
            case m.ComputePhase():
                assert order.view == view.number
                assert bool(order.ctx.repair) == bool(order.lost)
                if order.ctx.repair:
                    lost = {t: ids.tolist() for t, ids in order.lost.items()}
                    self.repairs.append((order.view, node, order.ctx, lost))
                n_examples = N_EXAMPLES // N_SHARDS * len(view.shards_of(node))
                self.inbox.append(m.Prepared(node, order.view, order.commit, n_examples))
                if (order.view, order.commit) not in self._prepared_asked:
                    self._prepared_asked.add((order.view, order.commit))
                    self.inbox += [m.Prepared(s, order.view, order.commit) for s in view.servers]
            case m.CommitPhase():
                self.inbox.append(m.Committed(node, order.view, order.commit))
            case m.EvaluateLoss() | m.EvaluateMetrics():
                self.inbox += self._evaluated(node, order)
            case m.MeasureBlocks():
                self.inbox.append(self._measured(node, order.save_id, order.changed_only))
            case m.SaveBlocks():
                self.extras[order.save_id] = order.extra
                of_save = self._chosen.setdefault(order.save_id, {})
                for name, ids in order.ids.items():
                    of_save[name] = sorted(of_save.get(name, []) + ids.tolist())
                size = 4 * sum(len(ids) for ids in order.ids.values())
                segment = f"{node}/{order.save_id}"
                self.inbox += [
                    m.BlocksStaged(node, order.save_id, size),
                    m.SaveCommitted(node, order.save_id, segment, 9),
                ]
            case m.RetrySave():
                self.inbox.append(m.SaveCommitted(node, order.save_id, f"{node}/{order.save_id}", 9))
            case m.GiveUpSave():
                pass
            case _:
                raise AssertionError(f"the controller sends {order}")

    def _evaluated(self, node: NodeId, order: m.EvaluateLoss | m.EvaluateMetrics) -> list[m.Event]:
        shards = self.controller.view.shards_of(node)
        if not shards:
            return []
        if isinstance(order, m.EvaluateLoss):
            return [m.LossComputed(node, order.view, order.commit, dict.fromkeys(shards, self.loss / N_SHARDS))]
        square = self.rmse(self.clock.iteration) ** 2
        return [m.MetricsComputed(node, order.view, order.commit, {shard: {"rmse": square} for shard in shards})]

    def _install(self, node: NodeId, order: m.InstallView) -> None:
        view = self.controller.view
        if order.view is not view:  # several were found silent at once: each loss makes another view
            assert order.view.number < view.number
            return
        self.loads.append((view.number, node, {t: ids.tolist() for t, ids in order.load.items()}))
        for holder, ids_of in order.fetch.items():
            assert holder not in (*self.lost, *self.stopped, node), f"{node} fetches from {holder}"
            fetched = {t: ids.tolist() for t, ids in ids_of.items()}
            self.fetches.append((view.number, node, holder, fetched))
            assert self.step is SaveStep.IDLE, "blocks are handed over while a save is in flight"
        n = sum(len(ids) for ids in order.load.values())
        self.inbox.append(m.ViewInstalled(node, view.number, restored=n, oldest=0 if n else None))

    def _measured(self, node: NodeId, save_id: int, changed_only: bool = False) -> m.BlocksMeasured:
        ids = {t.name: self.controller.view.blocks_of(node, self.layout, t.name) for t in self.layout.saved_tables}
        distance = {name: self.distance(mine) for name, mine in ids.items()}
        return m.BlocksMeasured(node, save_id, ids, {} if changed_only else {"distance": distance})

    # ------------------------------------------------------------------------------------------------------- invariants
    def check(self) -> None:
        """What is true after every event."""
        c = self.controller
        view, live = c.view, set(c.view.nodes) - c._lost
        for name, owners in view.partition_owner.items():
            assert len(owners) == len(self.layout.partitions[name])
            assert set(owners) <= set(view.servers), "a partition has an owner that is not in the view"
        assert len(view.shard_owner) == N_SHARDS
        assert set(view.shard_owner) <= set(view.workers)
        assert len(set(view.nodes)) == len(view.nodes)
        assert isinstance(c.state, State)
        if c.state in WAITS_FOR_NODES:
            assert c.awaited_nodes, f"nobody is waited for in {c.state}"
            assert c.awaited_nodes <= live, "somebody who is lost is waited for"
        if c._lost:
            assert c.state in MAY_HAVE_LOST
        assert c.clock.commit >= self._last_commit, "a commit number was used twice"
        self._last_commit = c.clock.commit
        save = c.saves._save
        assert (save is None) == (c.saves.step is SaveStep.IDLE)
        if save is not None:
            assert save.measuring | save.staging | save.writing <= live, "a save waits for somebody who is lost"
            assert c.saves.step is not SaveStep.MEASURING or save.measuring
            assert c.saves.step is not SaveStep.STAGING or save.staging
            assert c.saves.step is not SaveStep.WRITING or save.writing
        if c.state is State.COMMITTING:
            assert not c.saves.holds_commit, "blocks change while they are measured or staged"
        assert (c.state is State.FINISHED) == (self.finish is not None)


def brief(action: m.Action) -> str:
    """An action in a few words, for comparing lists of them."""
    match action:
        case m.Send():
            order = action.order
            detail = getattr(order, "commit", getattr(order, "save_id", ""))
            load = "" if not isinstance(order, m.InstallView) else _words(order.load) + _fetches(order)
            return f"{action.node} ← {type(order).__name__} {detail}{load}".strip()
        case m.StartNode():
            return f"start {action.node}"
        case m.StopNode():
            return f"stop {action.node}"
        case m.Report():
            return f"“{action.record.name}”"
        case m.ClaimTerm():
            return "claim a term from " + (f"x({action.unit.iteration})" if action.unit else "x(0)")
        case m.CompleteUnit():
            return f"record full save {action.save_id}"
        case m.SetTimer():
            return f"timer {action.delay_s:g} s"
        case m.Finish():
            return f"finish: {action.outcome}, {'saved' if action.saved else 'not saved'}"


def brief_event(event: m.Event) -> str:
    return f"{type(event).__name__} {getattr(event, 'node', '')}".strip()


def _words(load: Any) -> str:
    return "".join(f" {name}{ids.tolist()}" for name, ids in load.items())


def _fetches(order: m.InstallView) -> str:
    return "".join(f"{_words(ids)} from {holder}" for holder, ids in order.fetch.items())


def unit(iteration: int, term: int = 1) -> Version:
    """The version of a full save."""
    return Version(term, iteration, iteration)
