"""What SCAR writes as JSON is JSON, also where numbers are not finite, and is read again as it was."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from scarml.storage.event_log import EventLog
from scarml.storage.json_text import number_in, to_json_text
from scarml.storage.live_status import Status
from scarml.storage.memory import MemoryStore
from scarml.storage.run_history import read_history

EVENTS = [
    {"event": "loss_evaluated", "iteration": 1, "loss_sum": 5.0},
    {"event": "loss_evaluated", "iteration": 2, "loss_sum": math.nan},
    {"event": "metrics_evaluated", "iteration": 2, "metrics": {"rmse": math.inf, "mae": 1.5}},
]


def strictly(text: bytes | str) -> Any:
    def refuse(name: str) -> NoReturn:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_event_log_of_a_run_that_diverges_is_json_and_says_so() -> None:
    store = MemoryStore()
    EventLog(store).append(1, EVENTS)
    (chunk,) = store.list("events/")
    assert [strictly(line)["event"] for line in store.get(chunk).splitlines()] == [e["event"] for e in EVENTS]
    history = read_history(EventLog(store).read())
    assert history.loss_sum is not None
    assert math.isnan(history.loss_sum)
    assert math.isnan(history.metrics["rmse"])
    assert (history.metrics["mae"], history.metrics_iteration) == (1.5, 2)


def test_what_is_missing_or_odd_counts_for_nothing() -> None:
    odd: list[dict[str, Any]] = [{"event": "loss_evaluated"}, {"event": "loss_evaluated", "loss_sum": "low"}]
    assert read_history([EVENTS[0], *odd]).loss_sum == 5.0
    assert number_in({"loss_sum": True}, "loss_sum") is None


def test_a_live_status_is_json_whatever_its_numbers_are() -> None:
    status = Status(loss={"loss_sum": math.nan}, metrics={"rmse": math.inf}, updated_unix_s=1.5)
    stored = strictly(to_json_text(status.to_json()))
    assert (stored["loss"], stored["metrics"], stored["updated_unix_s"]) == ({"loss_sum": None}, {"rmse": None}, 1.5)
