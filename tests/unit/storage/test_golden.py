"""A run folder of each version of the format, made once: it is read as long as SCAR lives, also without SCAR."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden import make
from tests.golden.make import DOCS, TABLES, contents

from scarml.checkpoint.encoding_kinds import ENCODINGS, PACKED
from scarml.core.block import Blocks, Field, Table
from scarml.storage.local import LocalStore
from scarml.storage.run_folder import RunFolder
from scarml.storage.segment import Segment, SegmentId
from scarml.storage.segment_header import read_header

GOLDEN = Path(make.__file__).parent
EXAMPLE = GOLDEN.parent.parent / "examples" / "read_with_safetensors_alone.py"


def expected_of(version: str) -> Any:
    return json.loads((GOLDEN / version / "expected.json").read_text())


@pytest.mark.parametrize("version", ["v1"])
def test_a_run_of_every_version_of_the_format_is_read(version):
    run = RunFolder.open(LocalStore(str(GOLDEN / version / "run")))
    assert json.loads(json.dumps(contents(run))) == expected_of(version)


def test_it_has_one_of_everything():
    store = LocalStore(str(GOLDEN / "v1" / "run"))
    segments = [i for i in map(SegmentId.parse, store.list("segments/")) if i is not None]
    assert {(i.is_compacted, read_header(store, i.name).unit) for i in segments} == {
        (False, False),
        (False, True),
        (True, False),
    }
    forms = [t.form for i in segments for t in read_header(store, i.name).tables.values()]
    encodings = {(f.encoding, f.field.ragged) for form in forms for f in form.fields}
    assert {"plain", "float32", "bfloat16", "packed-9"} <= {e for e, _ in encodings}
    assert {("int8", True), ("int8", False), ("packed-11", True), ("packed-3", False)} <= encodings
    assert any(read_header(store, i.name).extra for i in segments if i.is_compacted)
    assert sum(p.stat().st_size for p in (GOLDEN / "v1").rglob("*") if p.is_file()) < 200_000


def test_the_script_still_makes_such_a_run(tmp_path):
    make.make(tmp_path / "new")
    made = json.loads((tmp_path / "new" / "expected.json").read_text())
    assert set(made["tables"]) == {t.name for t in TABLES}
    assert made["tables"]["encoded"]["versions"] == expected_of("v1")["tables"]["encoded"]["versions"]


def load_example() -> Any:
    spec = importlib.util.spec_from_file_location("read_with_safetensors_alone", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_without_scar_reads_the_same():
    expected = expected_of("v1")["tables"]
    found = load_example().read_run(GOLDEN / "v1" / "run")
    assert set(found) == set(expected)
    for t in TABLES:
        here, there = found[t.name], expected[t.name]
        ids = np.flatnonzero(there["found"]).tolist()
        assert here["ids"] == ids
        assert [[v[0], v[1], v[3]] for v in here["versions"]] == [there["versions"][i] for i in ids]
        assert DOCS.offsets is not None
        for f in t.fields:
            whole = np.array(there["fields"][f.name], f.dtype)
            rows = np.split(whole, DOCS.offsets[1:-1]) if f.ragged else list(whole)
            for i, values in zip(ids, here["fields"][f.name], strict=True):
                assert values.dtype == np.dtype(f.dtype)
                assert values.tolist() == rows[i].tolist()


@pytest.mark.parametrize("encoding", [e for e in ENCODINGS if e not in PACKED])
def test_the_example_reads_every_encoding_of_numbers(tmp_path, encoding):
    table = Table("W", 4, (Field("value", "float64", (5,)),))
    values = np.random.default_rng(1).normal(size=(4, 5)) * np.array([[1], [0], [1e-6], [1e30]])
    run = RunFolder.create(LocalStore(str(tmp_path)), {})
    term = run.claim_term("new")
    blocks = {"W": Blocks(table, table.all_ids, {"value": values})}
    run.write_segment(Segment(term, 1, 1, "server-0", 1, False, blocks, {"W": {"value": encoding}}))
    expected = run.reader(term).read_newest(table, table.all_ids).blocks.value
    assert load_example().read_run(tmp_path)["W"]["fields"]["value"].tolist() == expected.tolist()


def test_the_example_leaves_damaged_blocks_out(tmp_path, capsys):
    shutil.copytree(GOLDEN / "v1" / "run", tmp_path / "run")
    store = LocalStore(str(tmp_path / "run"))
    (newest,) = (i for i in map(SegmentId.parse, store.list("segments/")) if i is not None and i.node == "worker-2")
    header = read_header(store, newest.name)
    data = bytearray(store.get(newest.name))
    data[header.tables["plain"].fields[0].tensor.start] ^= 1
    store.put(newest.name, [bytes(data)])
    found = load_example().read_run(tmp_path / "run")
    assert found["plain"]["versions"][4][1] == 3
    assert found["docs"]["versions"][4][1] == 6
    store.put(newest.name, [bytes(data[:-1])])
    assert load_example().read_run(tmp_path / "run")["docs"]["versions"][4][1] == 3
    assert newest.name.removeprefix("segments/") in capsys.readouterr().err
