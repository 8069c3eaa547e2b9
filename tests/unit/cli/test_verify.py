"""``scarml verify``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.unit.cli.conftest import Scarml
from tests.unit.storage.test_rollback import a_run
from tests.unit.storage.test_run_folder import new_run, write
from tests.unit.storage.test_segment_reader import ALL, blocks, flip, segment

from scarml.storage.local import LocalStore


def test_a_clean_run_is_one_line_and_exit_code_0(scarml: Scarml) -> None:
    a_run(LocalStore("run"))
    ran = scarml("verify", "run")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "run: every checksum is right; read: 6 segments with 27 blocks (432 bytes), 2 full saves, 1 term\n"
    )
    as_json = json.loads(scarml("verify", "run", "--json").out)
    assert (as_json["schema_version"], as_json["is_clean"], as_json["n_blocks"]) == (1, True, 27)


def test_damage_is_named_and_exit_code_4(scarml: Scarml) -> None:
    run = a_run(LocalStore("run"))
    bad = segment(blocks([0], 19), commit=19)
    flip(run.store, bad, 0)
    run.store.put("notes.txt", [b"mine"])
    ran = scarml("verify", "run")
    assert (ran.code, ran.err) == (4, "")
    damaged, note, last = ran.out.splitlines()
    assert damaged.startswith(f"DAMAGED  {bad.name}: the checksum of block 0 of table 'W' is ")
    assert damaged.endswith(
        "; an older good copy is used, of iteration 180, in "
        "segments/00000001-000000000018-server-0-00000018.safetensors"
    )
    assert note == "note     notes.txt: SCAR has not made it"
    assert last.startswith("run: 1 object damaged; read: 6 segments")
    as_json = scarml("verify", "run", "--json")
    assert as_json.code == 4
    (f,) = json.loads(as_json.out)["damaged"]
    assert (f["table"], f["block"], f["other_copy"]["iteration"], f["other_copy"]["is_newer"]) == ("W", 0, 180, False)


def test_many_bad_blocks_of_one_segment_are_cut_short(scarml: Scarml) -> None:
    run = new_run(LocalStore("run"))
    run.claim_term("new")
    s = write(run, 1, 1)
    data = bytearray(run.store.get(s.name))
    data[-40:] = bytes(40)  # all checksums
    run.store.put(s.name, [bytes(data)])
    lines = scarml("verify", "run").out.splitlines()
    assert len(lines) == len(ALL) + 1
    assert "there is no other copy, so x(0) is used" in lines[0]


@pytest.mark.parametrize("damage", ["marker", "newer"])
def test_a_damaged_or_newer_description_is_said(scarml: Scarml, damage: str) -> None:
    a_run(LocalStore("run"))
    text = "{}" if damage == "marker" else '{"format": "scar-marker", "format_version": 99}'
    Path("run/SCAR-RUN").write_text(text)
    ran = scarml("verify", "run")
    assert ran.code == 4
    assert ran.out.startswith("DAMAGED  SCAR-RUN")
    assert ("use a newer SCAR" in ran.out) == (damage == "newer")


def test_what_is_no_run_is_a_usage_error(scarml: Scarml) -> None:
    np.save("array.npy", np.zeros(3))
    for name in ("nowhere", "array.npy", "."):
        ran = scarml("verify", name)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"scarml: error: {'there is no run in ' if name != 'array.npy' else ''}{name}")
