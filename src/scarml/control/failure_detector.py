"""The failure detector: who has been silent for too long, and why it thinks so. It reads no clock.

A process that dies is noticed by whoever holds a connection to it (`NodeLost`, within milliseconds). What is left for
this detector are nodes that hang, are stopped, or are cut off: they just fall silent. It suspects such a node after
``timeout_s``; a node that has not heard the controller for its lease ends itself, so that one wrongly suspected does no
harm.
"""

from __future__ import annotations

from collections.abc import Collection

from scarml.control.view import NodeId
from scarml.errors import UsageError

__all__ = ["FailureDetector"]


class FailureDetector:
    """Remembers when each node was last heard.

    Args:
        timeout_s: a silence longer than this is a failure; None: silence means nothing.

    Raises:
        UsageError: if the timeout is not positive.

    Example:
        >>> detector = FailureDetector(timeout_s=3.0)
        >>> detector.heard("server-0", now_s=10.0)
        >>> detector.suspects(["server-0"], now_s=13.0)
        {}
        >>> detector.suspects(["server-0"], now_s=13.5)
        {'server-0': 'no sign of life for 3.5 s; it hangs, is stopped, or is cut off'}
    """

    def __init__(self, timeout_s: float | None) -> None:
        if timeout_s is not None and not timeout_s > 0:
            raise UsageError(f"a silence of {timeout_s} s cannot be a failure; expected a positive number of seconds")
        self.timeout_s = timeout_s
        self._heard_s: dict[NodeId, float] = {}
        self._asked_s: float | None = None

    def heard(self, node: NodeId, now_s: float) -> None:
        """``node`` gave a sign of life."""
        self._heard_s[node] = max(now_s, self._heard_s.get(node, now_s))

    def suspects(self, nodes: Collection[NodeId], now_s: float) -> dict[NodeId, str]:
        """Which of these nodes have failed, and why, in words.

        A node's silence begins when it is first asked about. If nobody has asked for more than half the timeout, this
        process was itself stopped or held up, and all silences begin anew: it is not they that were away. So ask more
        often than that.
        """
        if self.timeout_s is None:
            return {}
        was_away = self._asked_s is not None and now_s - self._asked_s > self.timeout_s / 2
        self._asked_s = now_s
        self._heard_s = {n: now_s if was_away else self._heard_s.get(n, now_s) for n in nodes}
        silent = {n: now_s - heard_s for n, heard_s in self._heard_s.items() if now_s - heard_s > self.timeout_s}
        return {
            n: f"no sign of life for {silence_s:.1f} s; it hangs, is stopped, or is cut off"
            for n, silence_s in silent.items()
        }
