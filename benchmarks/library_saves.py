"""Saving in a loop of one's own with `scarml.RunningCheckpoint`, beside PyTorch's ways of saving.

The library saves an eighth of the state at a time, PyTorch all of it, once in eight iterations: the same bytes. The
stall is how long the loop is held up by one of these saves, by the clock, in memcpys of the whole state; on a busy
machine the clock counts others' turns too, so the processor time of the loop's thread stands beside it. What is stored
is compared with writing and syncing as many bytes raw; restoring a random half, with reading the extents it touches,
from the page cache. Everything else of a round, such as compaction, is over before the next task begins.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
from save_tasks import LibrarySaves, Parameters, RawFiles, alternate_parts, torch_saves
from side_by_side import Row, main, ratio_row, speed_row

from scarml.core.block import Field, Ids, Table
from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import SegmentId
from scarml.storage.segment_header import read_header
from scarml.storage.segment_reader import SegmentReader
from scarml.storage.terms import Terms

STALL_TARGETS = {"exact": 1.8, "background": 0.7}


@dataclass(frozen=True)
class Case:
    """A size of state, and the sizes of blocks it is cut into.

    Args:
        name: of the size.
        size_bytes: of the state.
        blocks: names and bytes.
        rounds: to measure.
    """

    name: str
    size_bytes: int
    blocks: tuple[tuple[str, int], ...]
    rounds: int


BOTH = (("1 KiB", 1 << 10), ("1 MiB", 1 << 20))
FULL = (
    Case("10 MiB", 10 << 20, BOTH, 25),
    Case("512 MiB", 512 << 20, BOTH, 5),  # 2 GiB would need 10 GiB of memory, and a quarter of an hour
    Case("640 MB", 640_000_000, (("64 B", 64),), 7),
)
QUICK = (Case("10 MiB", 10 << 20, BOTH, 3),)


def measure(quick: bool) -> list[Row]:
    rows = []
    for case in QUICK if quick else FULL:
        for name, block_bytes in case.blocks:
            state = Parameters(case.size_bytes // block_bytes, block_bytes)
            for scoring in STALL_TARGETS:
                rows += _told(_library(f"{case.name} in blocks of {name}", state, scoring, case.rounds))
            del state
        rows += _told(_torch(case))
    return rows


def _told(rows: list[Row]) -> list[Row]:
    """This takes minutes: each figure is shown, and kept, as it comes."""
    for r in rows:
        print(f"{r.what} ÷ {r.reference}: {r.figure:.3g} {r.unit}", file=sys.stderr, flush=True)
    return rows


def _library(name: str, state: Parameters, scoring: str, rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, LibrarySaves.opened(folder, state, scoring) as saves:
        s = alternate_parts({"memcpy": state.memcpy, "save": saves.save}, state.train, rounds)
        target = STALL_TARGETS[scoring]
        stall = f"{name}: stall, {scoring} scores"
        rows = [
            ratio_row(stall, "memcpy", s["stall"], s["memcpy"], at_most=target),
            ratio_row(f"{stall}, processor time", "memcpy", s["stall cpu"], s["memcpy cpu"], at_most=target),
        ]
        if scoring != "exact":
            return rows
        raw, named = "write, fsync of as many bytes", "the same, rename, fsync of the folder"
        rows += [
            speed_row(f"{name}: storing an eighth, once copied", raw, s["store"], s["raw"], at_least=0.8),
            speed_row(f"{name}: the same", named, s["store"], s["named"]),
            speed_row(f"{name}: from the call until it is durable", raw, s["durable"], s["raw"]),
            ratio_row(f"{name}: compaction that follows", raw, s["settle"], s["raw"]),
        ]
        return rows + _restore(name, f"{folder}/run", state, saves, max(3, rounds // 2))


def _restore(name: str, folder: str, state: Parameters, saves: LibrarySaves, rounds: int) -> list[Row]:
    n = len(state.W)
    lost = np.sort(np.random.default_rng(1).permutation(n)[: n // 2])
    with RawExtents(folder, state, lost) as extents:
        s = alternate_parts({"read": extents.read, "recover": partial(saves.recover, lost)}, lambda: None, rounds)
        reference = f"reading the {extents.n} touched extents"
        return [ratio_row(f"{name}: recovering a random half", reference, s["recover"], s["read"], at_most=1.5)]


def _torch(case: Case) -> list[Row]:
    state = Parameters(case.size_bytes >> 10, 1 << 10)
    with tempfile.TemporaryDirectory() as folder, torch_saves(folder, state) as saves:
        raw = RawFiles(folder, state.W)
        tasks = {"memcpy": state.memcpy, "raw": raw.write_all, **saves}
        s = alternate_parts(tasks, state.train, case.rounds)
    write = "write, fsync of all of it"
    return [
        ratio_row(f"{case.name}: stall, `async_save`", "memcpy", s["async_save stall"], s["memcpy"]),
        ratio_row(f"{case.name}: stall, `async_save`, kept stager", "memcpy", s["kept stall"], s["memcpy"]),
        ratio_row(f"{case.name}: stall, `dcp.save`", "memcpy", s["dcp.save"], s["memcpy"]),
        ratio_row(f"{case.name}: stall, `torch.save`, fsync", "memcpy", s["torch.save"], s["memcpy"]),
        speed_row(f"{case.name}: `async_save`, until it is durable", write, s["async_save durable"], s["raw"]),
        speed_row(f"{case.name}: `async_save`, kept stager, the same", write, s["kept durable"], s["raw"]),
        speed_row(f"{case.name}: `dcp.save`", write, s["dcp.save"], s["raw"]),
        speed_row(f"{case.name}: `torch.save`, fsync", write, s["torch.save"], s["raw"]),
    ]


class RawExtents:
    """The runs of bytes in which blocks' newest values lie, and a buffer that is kept to read them into.

    Args:
        folder: of a run.
        state: what it saves, as table W.
        wanted: the blocks, ascending.
    """

    def __init__(self, folder: str, state: Parameters, wanted: Ids) -> None:
        self._store = LocalStore(folder)
        run = RunFolder.open(self._store)
        term = run.last_term()
        assert term is not None
        table = Table("W", len(state.W), (Field("value", "float32", state.W.shape[1:]),))
        newest = run.reader(term).newest_versions(table)
        is_wanted = np.zeros(table.n_blocks, bool)
        is_wanted[wanted] = True
        self._extents: list[tuple[str, int, int]] = []
        for segment in Terms(self._store).visible_segments(term):
            here = SegmentReader(self._store, lambda s=segment: [s]).newest_versions(table)  # type: ignore[misc]
            ids = np.flatnonzero(here.term > 0)
            is_newest = (here.commit[ids] == newest.commit[ids]) & is_wanted[ids]
            self._extents += self._runs(segment, np.flatnonzero(is_newest), state.W[0].nbytes)
        self.n = len(self._extents)
        self._memory = memoryview(bytearray(max(n for _, _, n in self._extents)))

    def read(self) -> dict[str, float]:
        """Read all of them."""
        start_s = time.perf_counter()
        for name, start, n in self._extents:
            self._store.read_into(name, start, self._memory[:n])
        return {"read": time.perf_counter() - start_s}

    def _runs(self, segment: SegmentId, rows: Ids, row_bytes: int) -> list[tuple[str, int, int]]:
        if not len(rows):
            return []
        stored = read_header(self._store, segment.name).tables["W"]
        starts = stored.fields[0].tensor.start + rows * row_bytes
        cuts = np.flatnonzero(np.diff(starts) > row_bytes + self._store.gap_bytes) + 1
        return [(segment.name, int(run[0]), int(run[-1] + row_bytes - run[0])) for run in np.split(starts, cuts)]

    def __enter__(self) -> RawExtents:
        return self

    def __exit__(self, *exc: object) -> None:
        self._memory.release()


if __name__ == "__main__":
    main(measure, __file__)
