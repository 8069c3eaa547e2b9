"""The fault-tolerance controller: events in, actions out, no I/O, no clock.

One training phase runs at a time, and phases are atomic. A phase is *prepared* at a server when it holds every shard's
update; the controller decides its commit when all nodes are prepared. A node lost before the decision: undecided
updates are dropped and the phase is computed again on a new view. A node lost after it: the survivors finish the commit
first. So every update counts exactly once, and what a loss perturbs is exactly (restored − lost) at a commit.

A move that is not among the `TRANSITIONS` raises `ProtocolError` with the last events as its story, and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scarml.checkpoint.selection import Checkpoint, Recovery, SaveSelector
from scarml.checkpoint.version_index import Version
from scarml.control import messages as m
from scarml.control.checkpoint_coordinator import CheckpointCoordinator, SaveStep
from scarml.control.failure_detector import FailureDetector
from scarml.control.membership import Change, Membership
from scarml.control.phase_round import PhaseRound
from scarml.control.recovery_coordinator import RecoveryCoordinator
from scarml.control.repair_coordinator import RepairCoordinator
from scarml.control.stop import HeldOut, Stop, StopRule
from scarml.control.term_claim import TermClaim
from scarml.control.training_clock import TrainingClock
from scarml.control.transitions import State, StateMachine
from scarml.control.view import Layout, NodeId, View
from scarml.control.view_installation import Purpose, ViewInstallation
from scarml.core.model import Context

__all__ = ["Controller"]


class Controller:
    """Decides everything that happens in a run.

    Args:
        layout: tables, partitions and shards.
        servers, workers: the nodes at the start.
        n_phases: of the model.
        n_repair_phases: of the model.
        seed: of the run.
        checkpoint: what to save and how to recover.
        stop: when training is done.
        held_out: what is evaluated on held-out data, and how often; None: nothing.
        silence_s: a node that gives no sign of life for so long is lost; None: nobody listens.
        replaces: a lost node is replaced by a new one.
    """

    def __init__(  # noqa: PLR0913 - all keyword-only but what there is to own and by whom
        self,
        layout: Layout,
        servers: Sequence[NodeId],
        workers: Sequence[NodeId],
        *,
        n_phases: int,
        n_repair_phases: int = 0,
        seed: int,
        checkpoint: Checkpoint,
        stop: Stop,
        held_out: HeldOut | None = None,
        silence_s: float | None = None,
        replaces: bool = False,
    ) -> None:
        self._layout = layout
        self._checkpoint = checkpoint
        self._stop = StopRule(stop, layout.n_shards, held_out)
        self._seed = seed
        self._machine = StateMachine()
        self.term = 0
        self.clock = TrainingClock(n_phases, seed)
        self.recovery = RecoveryCoordinator(layout, servers, workers)
        self.repairs = RepairCoordinator(layout, n_phases, n_repair_phases if checkpoint.recovery == "repair" else 0)
        self.membership = Membership(servers, workers, replaces=replaces)
        self._detector = FailureDetector(silence_s)
        selector = SaveSelector(checkpoint, list(layout.tables.values()), seed)
        self.saves = CheckpointCoordinator(selector, layout, self.recovery, self._new_token, self._stop.to_save)
        self._next_token = 1
        self._lost: set[NodeId] = set()
        self._restores_everything = False
        self._phase: PhaseRound | None = None
        self._needs_rebuild = layout.has_derived
        self._boundary_is_new = False
        self._verdict: tuple[m.Outcome, str] | None = None
        self._installation = ViewInstallation({}, Purpose("start"), self._new_token)
        self._claim: TermClaim | None = None
        self._handlers: dict[type, Callable[[Any], list[m.Action]]] = {
            m.Start: self._on_start,
            m.ViewInstalled: self._on_view_installed,
            m.LoadFailed: self._on_load_failed,
            m.Prepared: self._on_prepared,
            m.Committed: self._on_committed,
            m.LossComputed: self._on_evaluated,
            m.MetricsComputed: self._on_evaluated,
            m.BlocksMeasured: lambda e: self._after_save_event(self.saves.on_measured(e)),
            m.BlocksStaged: lambda e: self._after_save_event(self.saves.on_staged(e)),
            m.SaveCommitted: lambda e: self._after_save_event(self.saves.on_committed(e)),
            m.SaveFailed: lambda e: self._after_save_event(self.saves.on_failed(e)),
            m.UnitCommitted: lambda e: self._after_save_event(self.saves.on_unit(e.save_id)),
            m.UnitFailed: lambda e: self._after_save_event(self.saves.on_unit_failed(e.save_id, e.cause)),
            m.TermClaimed: self._on_term_claimed,
            m.TermFailed: self._on_term_failed,
            m.NodeLost: self._on_node_lost,
            m.NodeJoined: self._on_node_joined,
            m.ScaleRequested: self._on_scale_requested,
            m.DrainRequested: self._on_drain_requested,
            m.Heartbeat: self._on_heartbeat,
            m.Tick: self._on_tick,
            m.TimerFired: self._on_timer,
            m.StopRequested: self._on_stop_requested,
            m.Superseded: lambda e: self._finish("superseded", e.cause, saved=False),
        }

    @property
    def state(self) -> State:
        """What is waited for."""
        return self._machine.state

    @property
    def view(self) -> View:
        """The present membership."""
        return self.recovery.view

    @property
    def awaited_nodes(self) -> set[NodeId]:
        """The nodes that training waits for now."""
        if self.state is State.INSTALLING:
            return self._installation.awaited_nodes
        return set() if self._phase is None else set(self._phase.waiting)

    @property
    def computing(self) -> Context | None:
        """The phase under way, or the last one."""
        return None if self._phase is None else self._phase.ctx

    def handle(self, event: m.Event) -> list[m.Action]:
        """What follows from an event: the one way in.

        Raises:
            ProtocolError: if the event is impossible now; nothing has changed then.
        """
        if self.state is State.FINISHED:
            return []
        if not isinstance(event, (m.Heartbeat, m.Tick)):
            self._machine.note(event)
        return self._handlers[type(event)](event)

    # ------------------------------------------------------------------------------------------------- views and loads
    def _on_start(self, e: m.Start) -> list[m.Action]:
        self._machine.check("start")
        if self._lost:
            self.recovery.lose(sorted(self._lost))
            self._lost.clear()
        self.term = e.term
        self.saves.last_unit = e.unit
        self.clock.start(e.commit, e.iteration, e.executed)
        self._stop.resume(e.best)
        return [
            m.report(
                "run_started",
                term=e.term,
                iteration=e.iteration,
                executed=e.executed,
                servers=list(self.view.servers),
                workers=list(self.view.workers),
            ),
            *([m.report("repair_declined")] if self._kind_of_recovery != self._checkpoint.recovery else []),
            *self._install("start", Purpose("start")),
        ]

    def _install(self, trigger: str, purpose: Purpose) -> list[m.Action]:
        self._machine.go(trigger)
        orders = {
            node: m.InstallView(self.view, self.term, self.clock.commit, takeover.load, takeover.fetch)
            for node, takeover in self.recovery.takeovers().items()
        }
        self._installation = ViewInstallation(orders, purpose, self._new_token)
        return self._installation.begin()

    def _on_view_installed(self, e: m.ViewInstalled) -> list[m.Action]:
        if self.state is not State.INSTALLING or not self._installation.awaits(e.node, e.view):
            return []
        self.recovery.settle(e.node)
        self.saves.note_loaded(e.loaded)
        actions = self._installation.on_installed(e)
        if not self._installation.is_complete:
            return actions
        self._needs_rebuild = self._layout.has_derived
        return [*actions, self._report_installed(), *self._release(), *self._proceed()]

    def _report_installed(self) -> m.Report:
        iteration, purpose = self.clock.iteration, self._installation.purpose
        perturbation = self.saves.forget_drift(purpose.lost, iteration) if purpose.is_recovery else {}
        return self._installation.completed(iteration, perturbation)

    def _release(self) -> list[m.Action]:
        """All obey the view: who has left it may end."""
        actions: list[m.Action] = []
        for node in self.membership.release():
            actions += [m.report("node_left", node=node), m.StopNode(node)]
        return actions

    def _on_load_failed(self, e: m.LoadFailed) -> list[m.Action]:
        if self.state is not State.INSTALLING or not self._installation.awaits(e.node, e.view):
            return []
        actions = self._installation.on_failed(e)
        if actions is None:
            return self._finish("store-down", f"{e.node} could not load lost blocks: {e.cause}", saved=False)
        return actions

    def _on_timer(self, e: m.TimerFired) -> list[m.Action]:
        if self.state is State.CLAIMING and self._claim is not None and (again := self._claim.on_timer(e.token)):
            return again
        installing = self._installation.on_timer(e.token) if self.state is State.INSTALLING else []
        return installing or self.saves.on_timer(e.token)

    # ---------------------------------------------------------------------------------------------------- the training
    def _proceed(self) -> list[m.Action]:
        """At a commit, with nothing under way: what next?"""
        if self._lost:
            return self._recover()
        change = self.membership.change(self.view)
        if not change.is_empty and self.saves.step is SaveStep.IDLE:  # a save in flight belongs to its nodes
            return self._reshape(change)
        actions: list[m.Action] = []
        if self._boundary_is_new and not self.repairs.is_pending:  # what is saved then is what has been mended
            self._boundary_is_new = False
            actions = self.saves.boundary(self._version())
        if self._needs_rebuild:
            return actions + self._compute(Context(self._seed, self.clock.iteration, m.REBUILD))
        if self.repairs.is_pending:
            ctx, reports = self.repairs.begin(self.clock.context())
            return reports + self._compute(ctx)
        if self.clock.at_boundary:
            evaluation = self._stop.next_evaluation(self.clock.iteration)
            if evaluation is not None:
                self._machine.go("evaluate")
                order = evaluation(self.view.number, self.clock.commit)
                return actions + [m.Send(worker, order) for worker in self.view.workers]
            self._verdict = self._stop.verdict(self.clock.iteration)
            if self._verdict is not None:
                self._machine.go("end")
                self.saves.final_is_whole = None
                return actions + self._try_to_end()
        return actions + self._compute(self.clock.context())

    def _compute(self, ctx: Context) -> list[m.Action]:
        self._machine.go("next phase")
        lost = self.repairs.unmended if ctx.repair else {}
        self._phase = PhaseRound(self.view, self.clock.commit + 1, ctx, lost)
        return self._phase.begin()

    def _on_prepared(self, e: m.Prepared) -> list[m.Action]:
        if self.state is not State.COMPUTING or self._phase is None or not self._phase.awaits(e):
            return []
        self._phase.waiting.remove(e.node)
        self.repairs.note_work(e.n_examples)
        if self._phase.waiting:
            return []
        if self.saves.holds_commit:
            self._machine.go("prepared, save not staged")
            return [m.report("commit_held", commit=self.clock.commit + 1)]
        return self._decide()

    def _decide(self) -> list[m.Action]:
        assert self._phase is not None
        self._machine.go("decide")
        return self._phase.decide()

    def _on_committed(self, e: m.Committed) -> list[m.Action]:
        if self.state is not State.COMMITTING or self._phase is None or not self._phase.awaits(e):
            return []
        return self._committed_at(e.node)

    def _committed_at(self, node: NodeId) -> list[m.Action]:
        """A node has committed, or is lost and will not."""
        assert self._phase is not None
        self._phase.waiting.discard(node)
        if self._phase.waiting:
            return []
        if self._phase.ctx.phase == m.REBUILD:
            self._needs_rebuild = False
            self.clock.count_commit()
            return self._proceed()
        if self._phase.ctx.repair:
            self.clock.count_commit()
            return self.repairs.on_committed(self.clock.iteration) + self._proceed()
        if not self.clock.advance():
            return self._proceed()
        self._stop.forget()
        self.membership.progressed(self.view)
        self._boundary_is_new = True
        report = m.report(
            "iteration_committed",
            iteration=self.clock.iteration,
            commit=self.clock.commit,
            executed=self.clock.executed,
        )
        return [report, *self._proceed()]

    def _on_evaluated(self, e: m.LossComputed | m.MetricsComputed) -> list[m.Action]:
        if e.view != self.view.number or self.state is not State.EVALUATING or e.commit != self.clock.commit:
            return []
        report = self._stop.take_in(e, self.clock.iteration, self.clock.executed)
        return [] if report is None else [report, *self._proceed()]

    # --------------------------------------------------------------------------------------------------------- the end
    def _try_to_end(self) -> list[m.Action]:
        """Await the save in flight, save all that changed, then finish."""
        if self.saves.step is not SaveStep.IDLE:
            return []
        if self.saves.final_is_whole is None:
            return self._after_save_event(self.saves.save_all_changed(self._version()))
        assert self._verdict is not None
        return self._finish(*self._verdict, saved=self.saves.final_is_whole)

    def _on_stop_requested(self, e: m.StopRequested) -> list[m.Action]:
        self._stop.request(e.reason)
        report = m.report("stop_requested", reason=e.reason)
        if self.state is State.WAITING:
            return [report, *self._finish("nodes-lost", "stopped while waiting for a node to join", saved=False)]
        return [report]

    def _finish(self, outcome: m.Outcome, reason: str, *, saved: bool) -> list[m.Action]:
        self._machine.go("finish")
        report = m.report(
            "run_finished",
            outcome=outcome,
            reason=reason,
            saved=saved,
            iteration=self.clock.iteration,
            executed=self.clock.executed,
        )
        return [report, m.Finish(outcome, reason, saved)]

    # ------------------------------------------------------------------------------------------------------- the saves
    def _after_save_event(self, actions: list[m.Action]) -> list[m.Action]:
        """The save in flight has moved: does anything wait for it?"""
        if self.state is State.HOLDING and not self.saves.holds_commit:
            return [*actions, m.report("commit_released", commit=self.clock.commit + 1), *self._decide()]
        if self.saves.step is not SaveStep.IDLE:
            return actions
        if self.state is State.DRAINING:
            return actions + self._claim_term()
        if self.state is State.SAVING:
            return actions + self._try_to_end()
        return actions

    def _version(self) -> Version:
        return Version(self.term, self.clock.commit, self.clock.iteration)

    # -------------------------------------------------------------------------------------------------------- failures
    def _on_node_lost(self, e: m.NodeLost) -> list[m.Action]:
        is_member = e.node in self.view.nodes
        if e.node in self._lost or not (is_member or self.membership.knows(e.node)):
            return []
        has_blocks = is_member or self.recovery.holds(e.node)
        if has_blocks:
            self._lost.add(e.node)
        lost = self._lost | {e.node}
        actions = [
            m.report("node_lost", node=e.node, reason=e.reason),
            *self.membership.lose(self.view, lost, e.node),
        ]
        for kind, left in self._left().items():
            if not left and not self.membership.coming(kind):
                return actions + self._finish("nodes-lost", f"no {kind} is left; the last was {e.node}", saved=False)
        if not has_blocks:
            return actions
        if self.state is State.COMMITTING:
            return actions + self.saves.lose(e.node) + self._committed_at(e.node)
        if self.state in (State.CLAIMING, State.NEW, State.WAITING):
            return actions + self.saves.lose(e.node)
        if self.state is State.DRAINING:
            return self._after_save_event(actions + self.saves.lose(e.node))
        return actions + self.saves.lose(e.node) + self._recover()

    def _left(self) -> dict[m.NodeKind, list[NodeId]]:
        """The nodes of the view that are not lost, by kind."""
        return {
            "server": [n for n in self.view.servers if n not in self._lost],
            "worker": [n for n in self.view.workers if n not in self._lost],
        }

    def _recover(self) -> list[m.Action]:
        """Nodes are lost and no commit is under way."""
        if self._checkpoint.recovery == "full":
            actions = self.saves.void("everything is taken back")
            if self.saves.step is SaveStep.IDLE:
                return actions + self._claim_term()
            self._machine.go("recover all, save in flight")
            return actions
        return self._restore("recover what was lost", everything=False)

    def _claim_term(self) -> list[m.Action]:
        self._machine.go("recover all")
        self._claim = TermClaim(self.saves.last_unit, self._new_token)
        return self._claim.begin()

    def _on_term_failed(self, e: m.TermFailed) -> list[m.Action]:
        if self.state is not State.CLAIMING or self._claim is None:
            return []
        actions = self._claim.on_failed(e.cause)
        if actions is None:
            return self._finish("store-down", f"no new term could be claimed: {e.cause}", saved=False)
        return actions

    def _on_term_claimed(self, e: m.TermClaimed) -> list[m.Action]:
        self._machine.check("term claimed")
        self._boundary_is_new = False
        self.term = e.term
        self.clock.rewind(self.saves.last_unit.iteration if self.saves.last_unit else 0)
        return self._restore("term claimed", everything=True)

    def _restore(self, trigger: str, *, everything: bool) -> list[m.Action]:
        self._stop.forget()
        self._restores_everything = everything
        joining = self.membership.change(self.view)
        needed: dict[m.NodeKind, tuple[NodeId, ...]] = {"server": (), "worker": ()}
        for kind, left in self._left().items():
            if not left:  # only then: what a new node takes from others is fetched when no save is in flight
                needed[kind] = joining.servers if kind == "server" else joining.workers
                if not needed[kind]:
                    self._machine.go("wait for a node")
                    return [m.report("waiting_for_node", kind=kind)]
        self.membership.made(Change((), needed["server"], needed["worker"]))
        if self._lost:
            self.recovery.lose(sorted(self._lost), needed["server"], needed["worker"])
            self._lost.clear()
        if everything:
            self.recovery.unsettle_all()
        purpose = Purpose(self._kind_of_recovery, self.recovery.lost_blocks())
        self.repairs.lose(purpose.lost)
        return [
            self._report_view(),
            m.report("recovery_started", view=self.view.number, kind=purpose.kind, lost_blocks=purpose.n_lost),
            *self._install(trigger, purpose),
        ]

    @property
    def _kind_of_recovery(self) -> Recovery:
        """What a recovery does: a model that mends nothing makes a partial one of a repair."""
        kind = self._checkpoint.recovery
        return "partial" if kind == "repair" and not self.repairs.is_on else kind

    def _report_view(self) -> m.Report:
        view = self.view
        return m.report("view_changed", view=view.number, servers=list(view.servers), workers=list(view.workers))

    # ----------------------------------------------------------------------------------------- nodes that come and go
    def _reshape(self, change: Change) -> list[m.Action]:
        """No node is lost: what moves is handed over as it is, and nothing is perturbed."""
        self.recovery.reshape(change.leaving, change.servers, change.workers)
        self.membership.made(change)
        takeovers = self.recovery.takeovers().values()
        n_moved = sum(len(ids) for t in takeovers for tables in t.fetch.values() for ids in tables.values())
        started = m.report(
            "handover_started",
            view=self.view.number,
            moving_blocks=n_moved,
            joining=[*change.servers, *change.workers],
            leaving=list(change.leaving),
        )
        return [self._report_view(), started, *self._install("hand over", Purpose("hand-over", n_moved=n_moved))]

    def _on_node_joined(self, e: m.NodeJoined) -> list[m.Action]:
        actions = self.membership.joined(e.node)
        if self.state is State.WAITING:
            actions += self._restore("node joined", everything=self._restores_everything)
        return actions

    def _on_scale_requested(self, e: m.ScaleRequested) -> list[m.Action]:
        return self.membership.scale(self.view, self._lost, e.servers, e.workers)

    def _on_drain_requested(self, e: m.DrainRequested) -> list[m.Action]:
        return self.membership.drain(self.view, self._lost, e.node, e.reason, replace=e.replace)

    def _on_heartbeat(self, e: m.Heartbeat) -> list[m.Action]:
        self._detector.heard(e.node, e.now_s)
        return []

    def _on_tick(self, e: m.Tick) -> list[m.Action]:
        watched = {*self.view.nodes, *self.membership.ready, *self.membership.departing} - self._lost
        actions: list[m.Action] = []
        for node, reason in self._detector.suspects(sorted(watched), e.now_s).items():
            if self.state is not State.FINISHED:
                actions += [m.StopNode(node), *self._on_node_lost(m.NodeLost(node, reason))]  # it may live
        return actions

    def _new_token(self) -> int:
        self._next_token += 1
        return self._next_token
