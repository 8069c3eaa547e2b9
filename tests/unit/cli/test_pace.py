"""A run that is slowed down still stops at once when it is told to."""

from __future__ import annotations

import pytest

from scarml.cli import pace
from scarml.cli.pace import Pace
from scarml.control.history import Record


@pytest.mark.parametrize("seconds", [60.0, 1e300])
def test_a_stop_ends_the_wait(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    slept: list[float] = []
    monkeypatch.setattr(pace.time, "sleep", slept.append)
    Pace(seconds, is_over=lambda: len(slept) == 3).take_in(Record("loss_evaluated", {}))
    assert len(slept) == 3
    assert max(slept) < 1
