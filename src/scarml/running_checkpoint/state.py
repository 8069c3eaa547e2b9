"""The user's tables, and what is known of each: its running checkpoint, and how far its blocks have moved."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from scarml.checkpoint.block_cache import BlockCache
from scarml.checkpoint.encoding import Encodings
from scarml.checkpoint.version_index import Version, Versions
from scarml.core.block import Blocks, Ids
from scarml.core.model import ALL
from scarml.errors import RecoveryError
from scarml.running_checkpoint.distance import distance
from scarml.running_checkpoint.scores import TableScores
from scarml.storage.segment import Segment, encode_segment
from scarml.storage.segment_reader import Restored, SegmentReader
from scarml.theory.perturbation import perturbation_norm

__all__ = ["NODE", "State", "Taken"]

NODE = "rank-0"
"""The one node that saves; several ranks in one folder would each have a number."""


class Taken:
    """What was taken from the store, over all tables."""

    def __init__(self) -> None:
        self.restored = 0
        self.missing: dict[str, Ids] = {}
        self.damaged: list[str] = []
        self._iterations: list[Ids] = []

    def take_in(self, name: str, found: Restored) -> None:
        """Note what was read of a table."""
        self.restored += int(found.found.sum())
        self._iterations.append(found.versions.iteration[found.found])
        self.damaged += [text for d in found.damaged if (text := str(d)) not in self.damaged]
        missing = found.blocks.ids[~found.found]
        if len(missing):
            self.missing[name] = missing

    @property
    def span(self) -> tuple[int, int]:
        """The oldest and the newest iteration of what was read; zeros if that was nothing."""
        iterations = np.concatenate([*self._iterations, np.zeros(0, np.int64)])
        return (int(iterations.min()), int(iterations.max())) if len(iterations) else (0, 0)


class State:
    """All tables of a run.

    Args:
        blocks: by table, over the user's own memory.
        encodings: how fields are stored.
    """

    def __init__(self, blocks: Mapping[str, Blocks], encodings: Encodings) -> None:
        self.blocks = blocks
        self.caches: dict[str, BlockCache] = {}
        self.scores: dict[str, TableScores] = {}
        self._encodings = encodings

    def start_anew(self) -> None:
        """Nothing is on the store: the arrays hold x(0)."""
        for name, blocks in self.blocks.items():
            self._begin(name, blocks, Versions.initial(len(blocks)))
            self.caches[name].must_save(blocks.ids)
        self._warm_up()

    def restore(self, reader: SegmentReader) -> Taken:
        """Fill the arrays with the newest stored values; nothing changes if the store cannot be read."""
        found = {name: reader.read_newest(b.table, b.ids) for name, b in self.blocks.items()}
        taken = Taken()
        for name, blocks in self.blocks.items():
            read = found.pop(name)
            taken.take_in(name, read)
            if name in taken.missing:
                blocks.put(read.blocks.take(read.blocks.ids[read.found]))
            else:
                blocks.put(read.blocks)
            self._begin(name, blocks, read.versions)
            self.caches[name].must_save(taken.missing.get(name, np.zeros(0, np.int64)))
        self._warm_up()
        return taken

    def recover(self, reader: SegmentReader, lost: Mapping[str, Ids]) -> tuple[Taken, float | None]:
        """Fill in only the lost blocks; and how far that moved the state, None if what was there is not finite.

        Raises:
            RecoveryError: the store has nothing of some of them; nothing was changed.
        """
        found = {name: reader.read_newest(self.blocks[name].table, ids) for name, ids in lost.items()}
        taken = Taken()
        for name, read in found.items():
            taken.take_in(name, read)
        for name, missing in taken.missing.items():
            raise RecoveryError(
                f"the store has no value of {len(missing)} of the lost blocks of table {name!r}, such as "
                f"{missing[:5].tolist()}: they were never finite when they were saved, or every copy is damaged. "
                "Nothing was restored"
            )
        pairs = [(read.blocks, self.blocks[name].take(lost[name])) for name, read in found.items()]
        with np.errstate(invalid="ignore", over="ignore"):
            perturbation = perturbation_norm(pairs, distance)
        for name, read in found.items():
            self.blocks[name].put(read.blocks)
            self.caches[name].put_back(read.blocks, read.versions)
            self.scores[name].touch(lost[name])
        return taken, perturbation if np.isfinite(perturbation) else None

    def touch(self, touched: Mapping[str, Ids] | None) -> None:
        """These blocks may have changed; of tables that are not named, all."""
        for name, scores in self.scores.items():
            scores.touch(None if touched is None else touched.get(name))

    def use(self, used: Mapping[str, Ids]) -> None:
        """These blocks have been used, each as often as it is named; of tables that are not named, all once."""
        for name, cache in self.caches.items():
            if name in used:
                cache.use(*np.unique(used[name], return_counts=True))
            else:
                cache.use(ALL, 1)

    def distances(self, as_they_are: bool, table: str) -> NDArray[np.float64]:
        """How far the blocks of a table have moved, after measuring what was touched, or without."""
        scores = self.scores[table]
        return scores.kept() if as_they_are else scores.measured()

    def staged(self, chosen: Mapping[str, Ids], version: Version) -> None:
        """Blocks were chosen for a save and copied."""
        for name, ids in chosen.items():
            self.scores[name].staged(ids, version)

    def durable_iterations(self) -> NDArray[np.int64]:
        """Of every block of all tables."""
        return np.concatenate([c.durable.iteration for c in self.caches.values()])

    def _begin(self, name: str, blocks: Blocks, versions: Versions) -> None:
        self.caches[name] = BlockCache(blocks, versions, distance, self._encodings.get(name))
        self.scores[name] = TableScores(blocks, self.caches[name])

    def _warm_up(self) -> None:
        """Save no blocks at all: what that compiles, or loads compiled, would hold training up at the first save."""
        nothing = np.zeros(0, np.int64)
        for name, blocks in self.blocks.items():
            self.caches[name].score(blocks.span(0, 1))
            empty = blocks.span(0, 0)
            cache = BlockCache(empty, Versions.initial(0), distance, self._encodings.get(name))
            staged, _ = cache.stage(empty, nothing, Version(0, 0, 0), 0)
            segment = Segment(0, 0, 0, NODE, 0, False, {name: staged}, {name: self._encodings.get(name, {})})
            for _ in encode_segment(segment):
                pass
