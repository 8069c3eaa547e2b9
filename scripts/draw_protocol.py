"""Write into docs/protocol.md what the code says: the controller's diagram, its states, and the messages.

``python scripts/draw_protocol.py`` writes; with ``--check`` it only looks, and exits 1 if the page is out of date. What
is between ``<!-- generated: NAME -->`` and ``<!-- end of generated: NAME -->`` is replaced.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any, get_args

from scarml.control import messages
from scarml.control.transitions import TRANSITIONS, State

PAGE = Path(__file__).resolve().parent.parent / "docs" / "protocol.md"
MANY = 3  # a move that more states than that share is drawn once, from a box around them


def diagram() -> str:
    """The controller's states and moves, as a mermaid diagram."""
    sources: dict[tuple[str, State], list[State]] = {}
    for (state, trigger), target in TRANSITIONS.items():
        sources.setdefault((trigger, target), []).append(state)
    shared = {key: states for key, states in sources.items() if len(states) > MANY and key[0] != "finish"}
    box = min(shared.values(), key=len)  # the states that share most of their moves: drawn in a box, the moves once
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.NEW.name}", '    state "training" as training {']
    lines += [f"        {state.name}" for state in box]
    outside = []
    for (trigger, target), states in sources.items():
        if trigger == "finish":
            continue
        if set(box) <= set(states):
            outside.append(f"    training --> {target.name}: {trigger}")
            states = [s for s in states if s not in box]
        for state in states:
            move = f"    {state.name} --> {target.name}: {trigger}"
            if state in box and target in box:
                lines.append("    " + move)
            else:
                outside.append(move)
    lines += ["    }", *outside]
    lines += [f"    training --> {State.FINISHED.name}: finish", f"    {State.FINISHED.name} --> [*]", "```", ""]
    never = [s.name for s in State if (s, "finish") not in TRANSITIONS]
    lines.append(f"A run may `finish` from every state but {', '.join(f'`{n}`' for n in never)}.")
    return "\n".join(lines)


def states() -> str:
    """What the controller waits for in each state."""
    return table(("state", "waits for"), [(f"`{s.name}`", s.value) for s in State])


def message_table(kind: Any) -> str:
    """One kind of messages: names, fields, and what each is for."""
    rows = []
    for message in get_args(kind):
        fields = ", ".join(f"`{f.name}`" for f in dataclasses.fields(message))
        purpose = (message.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()
        rows.append((f"`{message.__name__}`", fields, re.sub(r"``(.*?)``", r"`\1`", purpose).replace("|", "\\|")))
    return table(("message", "carries", "meaning"), rows)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parts() -> dict[str, str]:
    """Every generated part of the page, by name."""
    return {
        "controller diagram": diagram(),
        "controller states": states(),
        "orders": message_table(messages.NodeOrder),
        "events": message_table(messages.Event),
        "actions": message_table(messages.Action),
    }


def fill_in(page: str) -> str:
    """The page with every generated part as it should be. ValueError if the page has no place for one."""
    for name, text in parts().items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end of generated: {name} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(f"{PAGE.name} must have {begin} and {end} once each")
        before, rest = page.split(begin)
        _, after = rest.split(end)
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


def main() -> None:
    """Write the page, or check it."""
    page = PAGE.read_text()
    filled = fill_in(page)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(filled)
    elif filled != page:
        print(f"{PAGE.name} is out of date; run: python scripts/draw_protocol.py")
        sys.exit(1)


if __name__ == "__main__":
    main()
