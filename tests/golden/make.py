"""Makes the run folder that every later version of SCAR must be able to read, and what is in it.

From the repository's root, and only for a new version of the format:

    python -m tests.golden.make

It refuses to overwrite one that is there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from scarml.checkpoint.encoding import Encodings
from scarml.core.block import Blocks, Field, Table
from scarml.storage.compaction import Compactor, Limits
from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment
from scarml.storage.segment_layout import FORMAT_VERSION
from scarml.storage.unit import FullSave

FOLDER = Path(__file__).parent / f"v{FORMAT_VERSION}"

PLAIN = Table(
    "plain",
    6,
    (
        Field("value", "float32", (2, 3)),
        *(Field(f"as_{t}", t) for t in ("float64", "float16", "int64", "int32", "int16", "int8")),
        *(Field(f"as_{t}", t, (2,)) for t in ("uint64", "uint32", "uint16", "uint8", "bool")),
    ),
)
ENCODED = Table(
    "encoded",
    6,
    (
        Field("value", "float32", (5,)),
        Field("m", "float32", (5,)),
        Field("v", "float64", (5,)),
        Field("sum", "float64", (2,)),
        Field("counts", "uint16", (5,)),
        Field("step", "int64"),
    ),
)
DOCS = Table(
    "docs",
    6,
    (Field("value", "float64", ragged=True), Field("topics", "int32", ragged=True), Field("weight", "float32")),
    lengths=np.array([3, 0, 7, 1, 2, 5]),
)
TABLES = (PLAIN, ENCODED, DOCS)
ENCODINGS: Encodings = {
    "encoded": {
        "value": "int8",
        "m": "bfloat16",
        "v": "bfloat16",
        "sum": "float32",
        "counts": "packed-9",
        "step": "packed-3",
    },
    "docs": {"value": "int8", "topics": "packed-11"},
}


def blocks(table: Table, ids: list[int], seed: int) -> Blocks:
    rng = np.random.default_rng(seed)
    made = table.empty(np.array(ids, np.int64))
    for name, a in made.fields.items():
        if a.dtype.kind == "f":
            a[...] = rng.normal(size=a.shape).astype(a.dtype)
        else:
            a[...] = rng.integers(0, {"topics": 2048, "counts": 512, "step": 8}.get(name, 2), a.shape).astype(a.dtype)
    return made


def save(
    run: RunFolder, term: int, commit: int, ids: list[int], node: str = "server-0", unit: bool = False, **more: Any
) -> str:
    tables = {t.name: blocks(t, ids, seed=100 * commit + n) for n, t in enumerate(TABLES)}
    segment = Segment(term, commit, 2 * commit, node, commit, unit, tables, ENCODINGS, **more)
    run.write_segment(segment)
    return segment.name


def make(folder: Path) -> None:
    folder.mkdir()
    run = RunFolder.create(LocalStore(str(folder / "run")), {"what": f"the golden run of format {FORMAT_VERSION}"})
    term = run.claim_term("new")
    save(run, term, 1, [0, 1, 2, 3, 4], extra={"epoch": 1, "stream": np.arange(4, dtype=np.uint64)})
    save(run, term, 2, [2, 3], node="server-1")
    parts = [save(run, term, 3, ids, f"server-{n}", unit=True) for n, ids in enumerate(([0, 1, 2], [3, 4]))]
    run.write_unit(FullSave(term, 3, 6, 3, tuple(parts)))
    run.append_events(term, [{"event": "full_save_complete", "iteration": 6}])
    term = run.claim_term("parent")
    save(run, term, 4, [1, 3], extra={"epoch": 2, "note": "né", "stream": np.arange(5, dtype=np.uint64)})
    save(run, term, 5, [3])
    step = Compactor(run, term, Limits(slack_bytes=-(1 << 30))).step()
    assert step is not None
    assert step.written is not None
    save(run, term, 6, [4], node="worker-2")
    (folder / "expected.json").write_text(json.dumps(contents(run), indent=1) + "\n")


def contents(run: RunFolder) -> dict[str, Any]:
    """All that can be read from a run of these tables."""
    term = run.last_term()
    assert term is not None
    reader = run.reader(term)
    unit = run.last_unit(term)
    extra = reader.newest_extra()
    assert unit is not None
    assert extra is not None
    version, state = extra
    return {
        "description": run.description,
        "term": term,
        "tables": {t.name: restored(reader.read_newest(t, t.all_ids)) for t in TABLES},
        "unit": {
            "commit": unit.commit,
            "iteration": unit.iteration,
            "tables": {t.name: restored(run.read_unit(unit, t, t.all_ids)) for t in TABLES},
        },
        "extra": {
            "version": [version.term, version.commit, version.iteration],
            "state": {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in state.items()},
        },
        "events": run.read_events(),
    }


def restored(got: Any) -> dict[str, Any]:
    assert got.damaged == ()
    v = got.versions
    return {
        "found": got.found.tolist(),
        "versions": np.stack([v.term, v.commit, v.iteration], axis=1).tolist(),
        "fields": {name: a.tolist() for name, a in got.blocks.fields.items()},
    }


if __name__ == "__main__":
    make(FOLDER)
