"""A durable save, and restoring half of the blocks, on a local disk.

The save: 8 MiB in blocks of 1 KiB, with checksums, as one segment, against writing and syncing the very same bytes to a
file. Restoring: 64 MiB were saved as 8 segments of random blocks; a random half is read, through a reader that has not
read anything yet, against reading the extents that these blocks touch, gaps up to the store's limit included. What is
read is in the page cache.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import tempfile
import time

import numpy as np
from side_by_side import Row, alternate, main, ratio_row, speed_row

from scarml.core.block import Field, Ids, Table
from scarml.storage.local import LocalStore
from scarml.storage.segment import Segment, SegmentId, encode_segment
from scarml.storage.segment_header import read_header
from scarml.storage.segment_reader import SegmentReader

ROW_BYTES = 1024


def measure(quick: bool) -> list[Row]:
    n_blocks = (1 << 16) // (8 if quick else 1)
    table = Table("W", n_blocks, (Field("value", "float32", (ROW_BYTES // 4,)),))
    rng = np.random.default_rng(0)
    state = table.empty(table.all_ids)
    rng.random(dtype=np.float32, out=state.value)
    with tempfile.TemporaryDirectory(dir=os.environ.get("SCAR_BENCH_DIR")) as folder:
        store = LocalStore(folder)
        parts = [np.sort(p) for p in np.array_split(rng.permutation(n_blocks), 8)]
        segments = [
            Segment(1, k, k, "server-0", k, False, {"W": state.take(ids)}) for k, ids in enumerate(parts, start=1)
        ]
        rows = _write(store, folder, segments[0], 5 if quick else 60)
        for s in segments:
            store.put(s.name, encode_segment(s))
        half = np.sort(rng.permutation(n_blocks)[: n_blocks // 2])
        return rows + _read(store, table, [s.id for s in segments], half, 3 if quick else 40)


def _write(store: LocalStore, folder: str, segment: Segment, rounds: int) -> list[Row]:
    """Every round writes files of new names, as training does."""
    raw = b"".join(encode_segment(segment))
    numbers = itertools.count(100)

    def write(path: str) -> None:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(descriptor, raw)
        os.fsync(descriptor)
        os.close(descriptor)

    def write_and_name() -> None:
        path = f"{folder}/raw-{next(numbers)}"
        write(f"{path}.tmp")
        os.rename(f"{path}.tmp", path)
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    def save() -> None:
        new = dataclasses.replace(segment, save_id=next(numbers))
        store.put(new.name, encode_segment(new))

    tasks = {
        "raw": lambda: write(f"{folder}/raw-{next(numbers)}"),
        "named": write_and_name,
        "encode": lambda: encode_segment(segment),
        "save": save,
    }
    seconds = alternate(tasks, rounds, clock_s=time.perf_counter)
    mib = len(raw) >> 20
    atomic = "write, fsync, rename, fsync of the folder"
    return [
        ratio_row(f"encoding {mib} MiB, checksums included", "write, fsync", seconds["encode"], seconds["raw"]),
        speed_row(f"saving {mib} MiB durably", "write, fsync", seconds["save"], seconds["raw"], at_least=0.8),
        speed_row("the same", atomic, seconds["save"], seconds["named"], at_least=0.8),
    ]


def _read(store: LocalStore, table: Table, ids: list[SegmentId], half: Ids, rounds: int) -> list[Row]:
    extents = [e for i in ids for e in _touched(store, table, i, half)]
    memory = memoryview(bytearray(max(n for _, _, n in extents)))
    known = SegmentReader(store, lambda: ids)

    def read_extents() -> None:
        for name, start, n in extents:
            store.read_into(name, start, memory[:n])

    seconds = alternate(
        {
            "extents": read_extents,
            "fresh": lambda: SegmentReader(store, lambda: ids).read_newest(table, half),
            "known": lambda: known.read_newest(table, half),
        },
        rounds,
        clock_s=time.perf_counter,
    )
    what = f"restoring {len(half) * ROW_BYTES >> 20} of {table.n_blocks * ROW_BYTES >> 20} MiB"
    reference = f"reading the {len(extents)} touched extents"
    return [
        ratio_row(f"{what}, a fresh reader", reference, seconds["fresh"], seconds["extents"], at_most=1.5),
        ratio_row(f"{what}, again", reference, seconds["known"], seconds["extents"]),
    ]


def _touched(store: LocalStore, table: Table, segment: SegmentId, half: Ids) -> list[tuple[str, int, int]]:
    """Name, start and length of the runs of bytes that wanted blocks lie in; small gaps are read over."""
    header = read_header(store, segment.name)
    stored = header.tables[table.name]
    reader = SegmentReader(store, lambda: [segment])
    there = np.flatnonzero(reader.newest_versions(table).term > 0)
    rows = np.flatnonzero(np.isin(there, half))
    starts = stored.fields[0].tensor.start + rows * ROW_BYTES
    cuts = np.flatnonzero(np.diff(starts) > ROW_BYTES + store.gap_bytes) + 1
    return [(segment.name, int(run[0]), int(run[-1] + ROW_BYTES - run[0])) for run in np.split(starts, cuts)]


if __name__ == "__main__":
    main(measure, __file__)
