"""The in-memory copy of the running checkpoint: what a block would be restored to (section 4.3 of the paper).

One `BlockCache` stands beside the current blocks of one table on one node. It scores how far each block has moved since
it was last staged, and counts how often it has been used since. It copies chosen blocks into itself and into a staging
buffer, and knows for each block two versions: *staged* (chosen and copied, on its way to the store) and *durable* (the
store has reported it whole). Selection goes by staged values; recovery and reports by durable versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.encoding import element_counts, encodings_for
from scarml.checkpoint.version_index import Version, Versions
from scarml.core.block import Array, Blocks, Ids, concatenate
from scarml.core.contract import check_distance
from scarml.core.model import WholeTable
from scarml.errors import ModelError

__all__ = ["BlockCache", "CachePart", "Distance"]

_T = TypeVar("_T", bound=np.generic)
Distance = Callable[[Blocks, Blocks], NDArray[np.float64]]


@dataclass(slots=True)
class _InFlight:
    save_id: int
    ids: Ids
    version: Version


@dataclass(frozen=True, slots=True, eq=False)
class CachePart:
    """What a cache holds of some blocks: what goes with them when another node takes them over.

    Args:
        saved: their staged values.
        durable, staged: the versions.
        given_up: whose last save will never be durable.
        taken_over: of which the store may yet get something newer from a lost node.
        n_uses: how often they were used since they were staged.
    """

    saved: Blocks
    durable: Versions
    staged: Versions
    given_up: NDArray[np.bool_]
    taken_over: NDArray[np.bool_]
    n_uses: Ids

    def take(self, at: Ids) -> CachePart:
        """A copy of the part at these positions."""
        return CachePart(
            self.saved.take(self.saved.ids[at]),
            self.durable.take(at),
            self.staged.take(at),
            given_up=self.given_up[at],
            taken_over=self.taken_over[at],
            n_uses=self.n_uses[at],
        )


class BlockCache:
    """The running checkpoint of one table's blocks on one node.

    Args:
        blocks: what the running checkpoint holds for these blocks now, as loaded from the store or made as x(0); the
            cache takes a copy.
        versions: the versions of those values.
        distance: the model's norm.
        encodings: per field how it is stored, see `encoding`. What is staged is rounded to what would be restored, so
            that rounding counts as distance, and the policy corrects it.
        taken_over: the blocks were another node's until it was lost. Something newer of theirs may yet reach the store,
            so `changed` counts them until they have been staged here.
    """

    def __init__(
        self,
        blocks: Blocks,
        versions: Versions,
        distance: Distance,
        encodings: Mapping[str, str] | None = None,
        *,
        taken_over: bool = False,
    ) -> None:
        self._encodings = encodings_for(blocks.table, encodings or {})
        self._saved = blocks.copy()
        self._distance = distance
        self._given_up = np.zeros(len(blocks), bool)
        self._taken_over = np.full(len(blocks), taken_over, bool)
        self._n_uses = np.zeros(len(blocks), np.int64)
        self._in_flight: _InFlight | None = None
        self._buffer: dict[str, Array] = {}
        self.durable = versions
        self.staged = versions.take(np.arange(len(versions)))

    @property
    def ids(self) -> Ids:
        """The blocks held, ascending."""
        return self._saved.ids

    @property
    def saved(self) -> Blocks:
        """The staged values: what selection compares with. Do not write into it."""
        return self._saved

    def score(self, current: Blocks) -> NDArray[np.float64]:
        """Distance of each current block from its staged value, shape (n,).

        +inf for a block whose last save was given up; NaN for a block that is not finite now. ``current`` may be just
        some of the blocks held.
        """
        saved, given_up = self._saved, self._given_up
        if len(current) < len(saved):
            at = saved.positions(current.ids)
            is_run = len(at) > 0 and int(at[-1] - at[0]) == len(at) - 1
            saved = saved.span(int(at[0]), int(at[-1]) + 1) if is_run else saved.take(current.ids)
            given_up = given_up[at]
        with np.errstate(invalid="ignore", over="ignore"):
            distance = self._distance(current, saved)
        check_distance(current, saved, distance)
        distance[given_up] = np.inf
        if not np.isfinite(distance).all():
            distance[current.is_nonfinite()] = np.nan
        return distance

    @property
    def n_uses(self) -> Ids:
        """How often each block has been used since it was staged, or restored, shape (n,). Do not write into it."""
        return self._n_uses

    def use(self, ids: Ids | WholeTable, n: Ids | int) -> None:
        """These blocks (strictly increasing, or `ALL` that are held) have been used so often, or so often each.

        A *use* is one shard's update to a block in one commit: an update to `ALL` uses each block once, and a block at
        home on a worker is used once in each commit for which its shard computes it. Uses count once the commit is
        decided, so that a phase that is dropped and run again is not counted twice.
        """
        if isinstance(ids, WholeTable):
            self._n_uses += n
        else:
            self._n_uses[self._saved.positions(ids)] += n

    def uses(self) -> NDArray[np.float64]:
        """What selection goes by: `n_uses`, and +inf for a block whose last save was given up."""
        n_uses = self._n_uses.astype(np.float64)
        n_uses[self._given_up] = np.inf
        return n_uses

    def changed(self, current: Blocks) -> Ids:
        """The blocks whose bytes differ from the durable ones: what a graceful stop still has to save."""
        behind = self.durable.is_older_than(self.staged) | self._given_up | self._taken_over
        changed: Ids = self.ids[behind | current.differs_from(self._saved)]
        return changed

    def stage(
        self, current: Blocks, ids: Ids, version: Version, save_id: int, exact: bool = False
    ) -> tuple[Blocks, Ids]:
        """Copy the blocks ``ids``, rounded, into the cache and into the staging buffer.

        A block that is not finite is never saved over a finite one: it is left out. So is one that rounding takes
        beyond what its encoding can hold. Uses are counted anew for all of them: one that is left out again and again
        must not stand in the way of others.

        Args:
            current, ids: what to copy.
            version, save_id: of the save.
            exact: do not round: the segment is stored plain, as in the last save of a graceful stop.

        Returns:
            The staged blocks, valid until the next `stage`; and the ids that were left out.

        Raises:
            ModelError: integers beyond what the field's encoding has bits for: the table, or the user, promised others.
        """
        self._n_uses[self._saved.positions(ids)] = 0
        staged = current.take(ids, out=self._buffer_for(current, len(ids)))
        if not exact:
            self._round(staged)
        nonfinite = staged.is_nonfinite()
        left_out = ids[nonfinite]
        if len(left_out):
            staged = staged.take(ids[~nonfinite])
        at = self._saved.positions(staged.ids)
        self._saved.put(staged)
        self.staged.set(at, version)
        self._given_up[at] = False
        self._taken_over[at] = False
        self._in_flight = _InFlight(save_id, staged.ids, version)
        return staged, left_out

    def mark_durable(self, save_id: int) -> None:
        """The store holds everything that was staged for this save."""
        if self._in_flight is not None and self._in_flight.save_id == save_id:
            self.durable.set(self._saved.positions(self._in_flight.ids), self._in_flight.version)
            self._in_flight = None

    def give_up(self, save_id: int) -> None:
        """This save will never be durable: its blocks score +inf until they are saved again."""
        if self._in_flight is not None and self._in_flight.save_id == save_id:
            self._given_up[self._saved.positions(self._in_flight.ids)] = True
            self._in_flight = None

    def must_save(self, ids: Ids) -> None:
        """The store has nothing of these blocks: they come first in the next save."""
        self._given_up[self._saved.positions(ids)] = True

    def put_back(self, blocks: Blocks, versions: Versions) -> None:
        """Some of the blocks held have just been restored by the node that saved them, with no save in flight."""
        at = self._saved.positions(blocks.ids)
        self._saved.put(blocks)
        self.durable.put(at, versions)
        self.staged.put(at, versions)
        self._given_up[at] = False
        self._n_uses[at] = 0

    def adopt(self, blocks: Blocks, versions: Versions) -> None:
        """Take over a lost node's blocks, just restored, beside those held or in their place."""
        nobody, everybody = np.zeros(len(blocks), bool), np.ones(len(blocks), bool)
        n_uses = np.zeros(len(blocks), np.int64)
        self.join(CachePart(blocks, versions, versions, given_up=nobody, taken_over=everybody, n_uses=n_uses))

    def part(self, ids: Ids) -> CachePart:
        """A copy of what is held of the blocks ``ids``, for another node; with no save in flight."""
        whole = CachePart(
            self._saved,
            self.durable,
            self.staged,
            given_up=self._given_up,
            taken_over=self._taken_over,
            n_uses=self._n_uses,
        )
        return whole.take(self._saved.positions(ids))

    def keep(self, ids: Ids) -> None:
        """Forget all blocks but ``ids``."""
        if self._in_flight is not None:
            self._in_flight.ids = np.intersect1d(self._in_flight.ids, ids, assume_unique=True)
        self._replace(self.part(ids))

    def join(self, part: CachePart) -> None:
        """Take in a part of another cache, beside the blocks held or in their place.

        Of those that are in a save in flight the store may yet get the values of before: they must be saved again.
        """
        mine = self.part(np.setdiff1d(self._saved.ids, part.saved.ids, assume_unique=True))
        joined = concatenate(part.saved.table, [mine.saved, part.saved])
        mine_at, part_at = joined.positions(mine.saved.ids), joined.positions(part.saved.ids)

        def versions(a: Versions, b: Versions) -> Versions:
            both = Versions.initial(len(joined))
            both.put(mine_at, a)
            both.put(part_at, b)
            return both

        def each(a: NDArray[_T], b: NDArray[_T]) -> NDArray[_T]:
            both = np.zeros(len(joined), a.dtype)
            both[mine_at], both[part_at] = a, b
            return both

        whole = CachePart(
            joined,
            versions(mine.durable, part.durable),
            versions(mine.staged, part.staged),
            given_up=each(mine.given_up, part.given_up),
            taken_over=each(mine.taken_over, part.taken_over),
            n_uses=each(mine.n_uses, part.n_uses),
        )
        if self._in_flight is not None:
            again = np.isin(self._in_flight.ids, part.saved.ids)
            whole.given_up[joined.positions(self._in_flight.ids[again])] = True
            self._in_flight.ids = self._in_flight.ids[~again]
        self._replace(whole)

    def _replace(self, whole: CachePart) -> None:
        self._saved, self.durable, self.staged = whole.saved, whole.durable, whole.staged
        self._given_up, self._taken_over, self._n_uses = whole.given_up, whole.taken_over, whole.n_uses
        self._buffer = {}

    def _round(self, staged: Blocks) -> None:
        """Round in place to what would be restored."""
        for f in staged.table.fields:
            encoding, values = self._encodings[f.name], staged.fields[f.name].reshape(-1)
            if problem := encoding.problem_with_values(values):
                raise ModelError(
                    f"field {f.name!r} of table {staged.table.name!r}: {problem}. Correct what is said of the field, "
                    "or give it another encoding"
                )
            if encoding.is_lossy:
                values[...] = encoding.rounded(values, element_counts(staged.table, f, staged.ids))

    def _buffer_for(self, current: Blocks, n: int) -> dict[str, Array]:
        if current.table.lengths is not None:
            wanted = {f.name: current.fields[f.name].shape[0] if f.ragged else n for f in current.table.fields}
        else:
            wanted = {f.name: n for f in current.table.fields}
        for name, length in wanted.items():
            kept = self._buffer.get(name)
            if kept is None or len(kept) < length:
                a = current.fields[name]
                self._buffer[name] = np.empty((length, *a.shape[1:]), a.dtype)
        return self._buffer
