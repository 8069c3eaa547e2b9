"""What has just been said is not said again: a full disk refuses every save of every node, five times each."""

from __future__ import annotations

import re

from scarml.control.history import Record

__all__ = ["OldNews"]

AGAIN_AFTER_S = 10.0
_REPEATS: dict[str, tuple[str, ...]] = {
    "save_failed": ("cause",),
    "save_given_up": ("cause",),
    "waiting_for_node": ("kind",),
}
"""By the name of a record the fields that make it news."""
_PATH = re.compile(r"\S*/\S+")


class OldNews:
    """Remembers what has been said.

    Example:
        >>> def refused(t_s, file):
        ...     return Record("save_failed", {"node": "server-0", "cause": f"cannot write {file}: disk full"}, t_s)
        >>> old = OldNews()
        >>> [old.has(refused(t_s, file)) for t_s, file in ((1.0, "run/a"), (1.1, "run/b"), (11.5, "run/c"))]
        [False, True, False]
        >>> [old.has(Record("node_lost", {"node": "server-0"}, t_s)) for t_s in (1.0, 1.1)]
        [False, False]
    """

    def __init__(self) -> None:
        self._said_s: dict[tuple[str, ...], float] = {}

    def has(self, record: Record) -> bool:
        """Whether the same has been said a moment ago, of whatever node and file. If not, it is said now."""
        if record.name not in _REPEATS:
            return False
        what = (record.name, *(_PATH.sub("", str(record.fields.get(f))) for f in _REPEATS[record.name]))
        if record.t_s < self._said_s.get(what, -AGAIN_AFTER_S) + AGAIN_AFTER_S:
            return True
        self._said_s[what] = record.t_s
        return False
