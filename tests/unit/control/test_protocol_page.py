"""docs/protocol.md shows what the code does."""

from __future__ import annotations

import re

import pytest
from scripts.draw_protocol import PAGE, diagram, fill_in

from scarml.control.transitions import TRANSITIONS, State

PAGE_TEXT = PAGE.read_text() if PAGE.exists() else ""


def test_the_page_is_up_to_date() -> None:
    assert fill_in(PAGE_TEXT) == PAGE_TEXT, "run: python scripts/draw_protocol.py"


def test_the_diagram_has_every_move_and_no_other() -> None:
    drawn = set()
    text = diagram()
    box = re.search(r"training {\n(.*?)\n    }", text, re.DOTALL)
    assert box is not None
    inside = {State[n] for n in re.findall(r"^ {8}(\w+)$", box[1], re.MULTILINE)}
    for source, target, trigger in re.findall(r"(\w+) --> (\w+): (.*)", text):
        for state in inside if source == "training" else [State[source]]:
            drawn.add((state, trigger, State[target]))
    finishes = {(s, t, to) for (s, t), to in TRANSITIONS.items() if t == "finish"}
    assert drawn | finishes == {(s, t, to) for (s, t), to in TRANSITIONS.items()}


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="must have <!-- generated: controller diagram -->"):
        fill_in("# Protocol")


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:src|tests)/[\w/.-]+)`", PAGE_TEXT))))
def test_files_that_the_page_names_are_there(path: str) -> None:
    assert (PAGE.parent.parent / path).exists()
