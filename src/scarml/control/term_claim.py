"""Claiming a new term, before everything is taken back; a store that refuses is tried again."""

from __future__ import annotations

from collections.abc import Callable

from scarml.checkpoint.version_index import Version
from scarml.control import messages as m
from scarml.control.view_installation import ATTEMPTS, wait_for_store

__all__ = ["TermClaim"]


class TermClaim:
    """One claim, as often as it takes.

    Args:
        unit: the full save that the term is based on; None: x(0).
        new_timer: gives a fresh token for a timer.
    """

    def __init__(self, unit: Version | None, new_timer: Callable[[], int]) -> None:
        self._unit = unit
        self._new_timer = new_timer
        self._attempts = 0
        self._retry: int | None = None

    def begin(self) -> list[m.Action]:
        """Ask for it."""
        return [m.ClaimTerm(self._unit)]

    def on_failed(self, cause: str) -> list[m.Action] | None:
        """The store refused. Returns None if it has been tried often enough."""
        if self._retry is not None:
            return []
        self._attempts += 1
        if self._attempts >= ATTEMPTS:
            return None
        self._retry = self._new_timer()
        return wait_for_store("controller", cause, self._attempts, self._retry)

    def on_timer(self, token: int) -> list[m.Action]:
        """Time to try again."""
        if token != self._retry:
            return []
        self._retry = None
        return self.begin()
