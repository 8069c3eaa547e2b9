"""The witness of a simulated life: holds everything that a cluster does against what must always be true.

Invariants of ``docs/design.md``, by number: (1) a restored block was once a value of the training, all its fields of
one moment, before it is mended; (2) what was reported committed is never lost; (3) no stale writer wins, no old view is
obeyed; (4) a partial recovery leaves survivors bit-identical, and so does a repair, which mends all that was restored;
(5) every partition has exactly one live owner; (6) every update counts exactly once; (8) the job finishes. (4) and (6),
and that results do not depend on nodes, are checked in the strongest form there is: after every commit the blocks of
all nodes equal, bit by bit, those of a sequential run, and so does how often each block has been used.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.encoding import Encodings, element_counts, encodings_for
from scarml.checkpoint.version_index import Version, Versions
from scarml.control import messages as m
from scarml.core.block import Blocks, Ids, concatenate
from scarml.core.model import Context
from scarml.core.sequential import Sequential, State
from scarml.engine.cluster import Cluster
from scarml.engine.local_nodes import LocalNodes
from scarml.engine.node import Node
from scarml.engine.simulation.use_counts import UseCounts
from scarml.errors import ProtocolError

__all__ = ["Follower", "InvariantError", "Witness"]


class InvariantError(ProtocolError):
    """An invariant does not hold: a bug in SCAR."""


class Witness:
    """What all incarnations of a run have shown so far.

    Args:
        reference: a sequential run of the same model on the same data with the same seed and shards.
        encodings: how fields are stored: a restored value may be the rounded form of one that the training had.
    """

    def __init__(self, reference: Sequential, encodings: Encodings) -> None:
        self.reference = reference
        self._encodings = encodings
        self.n_checks: Counter[str] = Counter()
        self._values: dict[tuple[int, int], list[State]] = {(0, 0): [_copy(reference.state)]}
        self._reported = {name: Versions.initial(t.n_blocks) for name, t in reference.tables.items() if not t.derived}
        self._unit = Version(0, 0, 0)

    def note_state(self, version: tuple[int, int], state: State) -> None:
        """The training has reached this state."""
        self._values.setdefault(version, []).append(_copy(state))

    def note_reported(self, node: Node) -> None:
        """A node has just reported a save as committed: its durable versions are promises."""
        for name, cache in node.holder.caches.items():
            promised = self._reported[name]
            at = cache.ids[promised.take(cache.ids).is_older_than(cache.durable)]
            promised.put(at, cache.durable.take(np.flatnonzero(np.isin(cache.ids, at))))

    def note_unit(self, version: Version) -> None:
        """A full save has just been reported complete."""
        self._unit = max(self._unit, version)

    def note_taken_back(self, version: Version | None) -> None:
        """Everything is to be restored from this full save (None: x(0)): what came after it was given up."""
        version = version or Version(0, 0, 0)
        self.require(version >= self._unit, 2, f"taken back to {version}, but the full save {self._unit} was reported")
        for promised in self._reported.values():
            promised.set(np.arange(len(promised)), version)

    def check_durable(self, node: Node, settled: State) -> None:
        """No node may think that a block is durable before its save was reported, unless it has just loaded it."""
        for name, cache in node.holder.caches.items():
            early = self._reported[name].take(cache.ids).is_older_than(cache.durable)
            early &= np.isin(cache.ids, settled[name].ids) if name in settled else False
            story = f"{node.name} takes blocks {cache.ids[early][:5].tolist()} of {name} for durable too early"
            self.require(not early.any(), 2, story)

    def check_not_lost(self, blocks: Blocks, versions: Versions) -> None:
        """Blocks that were restored: none is older than what was reported (2)."""
        name = blocks.table.name
        if not len(blocks):
            return
        lost = versions.is_older_than(self._reported[name].take(blocks.ids))
        i = int(np.argmax(lost))
        self.require(
            not lost.any(),
            2,
            f"block {blocks.ids[i]} of {name} was restored at version ({versions.term[i]}, {versions.commit[i]}); "
            f"({self._reported[name].term[blocks.ids[i]]}, {self._reported[name].commit[blocks.ids[i]]}) was reported",
        )

    def check_restored(self, blocks: Blocks, versions: Versions, exactly: Version | None) -> None:
        """Blocks that were restored: values that the training had (1), and of that full save if there is one (3)."""
        name = blocks.table.name
        if exactly is not None:
            same = (versions.term == exactly.term) & (versions.commit == exactly.commit)
            self.require(bool(same.all()), 3, f"blocks of {name} are not all of the full save {exactly}")
        for version in sorted(set(zip(versions.term.tolist(), versions.commit.tolist(), strict=True))):
            at = (versions.term == version[0]) & (versions.commit == version[1])
            some = blocks.take(blocks.ids[at])
            once = self._values.get(version, [])
            real = np.zeros(len(some), bool)
            for state in once:
                had = state[name].take(some.ids)
                real |= ~some.differs_from(had) | ~some.differs_from(self._rounded(had))
            wrong = some.ids[~real][:5].tolist()
            self.require(bool(real.all()), 1, f"blocks {wrong} of {name} at version {version} were never such values")

    def _rounded(self, blocks: Blocks) -> Blocks:
        rounded = blocks.copy()
        for field_name, encoding in encodings_for(blocks.table, self._encodings.get(blocks.table.name, {})).items():
            f = next(f for f in blocks.table.fields if f.name == field_name)
            values = rounded.fields[field_name].reshape(-1)
            values[...] = encoding.rounded(values, element_counts(blocks.table, f, blocks.ids))
        return rounded

    def require(self, holds: bool, invariant: int, story: str) -> None:
        """Count a check; raise InvariantError if it fails."""
        self.n_checks[f"invariant {invariant}"] += 1
        if not holds:
            raise InvariantError(f"invariant {invariant} is broken: {story}")


class Follower:
    """Follows one incarnation, event by event.

    Args:
        witness: shared by all incarnations.
        cluster, nodes: of this incarnation.
    """

    def __init__(self, witness: Witness, cluster: Cluster, nodes: LocalNodes) -> None:
        self._witness = witness
        self._cluster = cluster
        self._nodes = nodes
        self._commit: int | None = None
        self._expected: State = {}
        self._restored_view = 0
        self.is_cut_off = False
        """Whether another start has taken over: what this one knows to be saved is not what counts."""
        self._computing: Context | None = None
        self._before: State = {}
        self._unmended: dict[str, Ids] = {}
        """What has been restored since the last whole repair."""
        self._n_mending_phases = 0
        tables = witness.reference.tables.values()
        self._uses = UseCounts({t.name: t.n_blocks for t in tables if not t.derived})

    def before(self, event: m.Event) -> None:
        """An event is about to reach the controller."""
        self._computing = self._cluster.controller.computing
        version = self._cluster.controller.saves.version_in_flight
        if isinstance(event, m.UnitCommitted) and version is not None:
            self._witness.note_unit(version)

    def reported(self, name: str) -> None:
        """A node has put a `SaveCommitted` on its way."""
        if name in self._nodes.live:
            self._witness.note_reported(self._nodes.live[name])

    def after(self) -> None:
        """The controller has handled an event."""
        self._catch_up()
        self._check_view()

    def recovered(self, view: int, exactly: Version | None) -> None:
        """All nodes have installed a view and loaded what they lacked. Who has left it may still hold what was."""
        self._check_survivors()
        for node in (n for n in self._nodes.live.values() if n.holder.obeys(view)):
            for name, cache in node.holder.caches.items():
                fresh = self._is_fresh(name, cache.ids)
                self._uses.restored(name, cache.ids[fresh])
                blocks, versions = node.holder.blocks[name], cache.durable
                if exactly is not None or fresh.any():
                    at = np.flatnonzero(fresh) if exactly is None else np.arange(len(cache.ids))
                    restored, versions = blocks.take(cache.ids[at]), versions.take(at)
                    self._witness.check_restored(restored, versions, exactly)
                    if not self.is_cut_off:
                        self._witness.check_not_lost(restored, versions)
                self._witness.note_reported(node)
        self._settle(view)

    def restoring(self, everything: bool) -> None:
        """A recovery begins: what live nodes hold must stay as it is, unless everything is taken back."""
        self._catch_up()
        self._n_mending_phases = 0
        if everything:
            self._expected = {}
            return
        controller, layout = self._cluster.controller, self._nodes.training.layout
        lost = controller.recovery.lost_blocks()
        for name, ids in lost.items():
            self._unmended[name] = np.union1d(self._unmended.get(name, ids), ids)
        for name in list(self._expected):
            if self._expected[name].table.derived:
                del self._expected[name]
                continue
            keep = [np.setdiff1d(self._expected[name].ids, lost[name])]
            for node in self._nodes.live.values():
                if name in node.holder.blocks:  # its new owner may have got it in a view that failed
                    owned = controller.view.blocks_of(node.name, layout, name)
                    keep.append(np.intersect1d(node.holder.blocks[name].ids, owned))
            ids = np.intersect1d(self._expected[name].ids, np.concatenate(keep))
            self._expected[name] = self._expected[name].take(ids)

    # ------------------------------------------------------------------------------------------------------ the checks
    def _catch_up(self) -> None:
        """A commit has been completed: compute it again, sequentially, and compare."""
        if self._commit is None or self._cluster.controller.clock.commit != self._commit + 1:
            return
        reference, ctx = self._witness.reference, self._computing
        assert ctx is not None
        reference.state, reference.uses = _copy(self._before), {}
        if ctx.phase == m.REBUILD:
            reference.rebuild()
        elif ctx.repair:
            reference.run_phase(ctx, self._unmended)
            self._check_mended(reference.state)
        else:
            left = self._unmended if self._cluster.controller.repairs.is_on else {}
            story = f"training goes on, with blocks of {list(left)} restored and not mended"
            self._witness.require(not any(map(len, left.values())), 4, story)
            reference.run_phase(ctx)
        self._before = _copy(reference.state)
        self._expected = dict(self._before)
        self._commit = self._cluster.controller.clock.commit
        self._uses.committed(self._commit, reference.uses)
        self._check_survivors()
        self._witness.note_state((self._cluster.controller.term, self._commit), self._expected)

    def _check_survivors(self) -> None:
        for node in self._nodes.live.values():
            if not self.is_cut_off:
                self._witness.check_durable(node, self._expected)
            for name, blocks in node.holder.blocks.items():
                if name in self._expected:
                    common = np.intersect1d(blocks.ids, self._expected[name].ids)
                    differs = blocks.take(common).differs_from(self._expected[name].take(common))
                    wrong = common[differs][:5].tolist()
                    story = (
                        f"blocks {wrong} of {name} on {node.name} differ from a sequential run at commit {self._commit}"
                    )
                    self._witness.require(not differs.any(), 4, story)
            if node.holder.commit == self._commit:
                self._check_uses(node)

    def _check_uses(self, node: Node) -> None:
        """A use is counted once, by whoever owns the block when it is staged."""
        for name, cache in node.holder.caches.items():
            known = ~self._is_fresh(name, cache.ids)
            ids, staged = cache.ids[known], cache.staged.take(np.flatnonzero(known))
            expected = self._uses.since(staged, self._cluster.controller.term, name, ids)
            wrong = np.flatnonzero(cache.n_uses[known] != expected)[:5]
            story = (
                f"blocks {ids[wrong].tolist()} of {name} on {node.name} count {cache.n_uses[known][wrong].tolist()} "
                f"uses at commit {self._commit}; expected {expected[wrong].tolist()}"
            )
            self._witness.require(not len(wrong), 6, story)

    def _check_mended(self, state: State) -> None:
        """A phase of a repair has been committed: what was not lost is as it was."""
        for name, blocks in state.items():
            if not blocks.table.derived:
                changed = blocks.ids[blocks.differs_from(self._before[name])]
                wrong = np.setdiff1d(changed, self._unmended.get(name, changed[:0]))[:5].tolist()
                self._witness.require(not wrong, 4, f"blocks {wrong} of {name} were not lost, and were mended")
        self._n_mending_phases += 1
        if self._n_mending_phases == self._nodes.training.model.n_repair_phases:
            self._unmended, self._n_mending_phases = {}, 0

    def _is_fresh(self, name: str, ids: Ids) -> NDArray[np.bool_]:
        if name not in self._expected:
            return np.ones(len(ids), bool)
        return ~np.isin(ids, self._expected[name].ids)

    def _settle(self, view: int) -> None:
        state = self.state_in_view(view)
        for name, blocks in state.items():
            table = blocks.table
            complete = len(blocks) == table.n_blocks
            self._witness.require(complete, 5, f"{table.n_blocks - len(blocks)} blocks of {name} have no live owner")
        self._commit = self._cluster.controller.clock.commit
        self._uses.begin(self._commit)
        self._before = _copy(state)
        self._expected = dict(self._before)
        self._witness.note_state((self._cluster.controller.term, self._commit), state)

    def state_in_view(self, number: int | None = None) -> State:
        """Per table all blocks there are; of one that is at two nodes, what the node has that obeys the view.

        A node of the view may have died without the controller knowing yet, even if it has decided on the next view,
        without that node. By default it is the present view.
        """
        view = self._cluster.controller.view
        number = view.number if number is None else number
        dead = (d for n, d in self._nodes.dead.items() if n in view.nodes or d.holder.obeys(number))
        known = [*self._nodes.live.values(), *dead]
        known.sort(key=lambda node: not node.holder.obeys(number))
        state: State = {}
        for name, table in self._witness.reference.tables.items():
            whole = table.empty(np.zeros(0, np.int64))
            for held in (node.holder.blocks[name] for node in known if name in node.holder.blocks):
                more = np.setdiff1d(held.ids, whole.ids, assume_unique=True)
                whole = concatenate(table, [whole, held.take(more)])
            state[name] = whole
        return state

    def _check_view(self) -> None:
        controller = self._cluster.controller
        view = controller.view
        if view.number == self._restored_view:
            return
        self._restored_view = view.number
        live = set(view.nodes)
        for name, parts in self._nodes.training.layout.partitions.items():
            owners = view.owners(self._nodes.training.layout, name)
            owned = len(owners) == len(parts) and set(owners) <= live
            self._witness.require(owned, 5, f"partitions of {name} in view {view.number} have no live owner")


def _copy(state: State) -> State:
    return {name: blocks.copy() for name, blocks in state.items()}
