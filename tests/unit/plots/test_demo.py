from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scarml.plots.demo import draw, figure


def row(run: str, iterations: int, loss: float, event: str = "", iteration: int | None = None) -> dict[str, Any]:
    where = iterations if iteration is None else iteration
    return {"run": run, "iterations": iterations, "iteration": where, "loss_sum": loss, "event": event}


def rows() -> list[dict[str, Any]]:
    calm = [row("no-failure", k, 1000 * 0.9**k) for k in range(21)]
    lost = [row("full", k, 1000 * 0.9**k) for k in range(11)]
    lost += [row("full", 10, 349.0, "node_lost"), row("full", 10, 349.0, "recovery_completed", 8)]
    lost += [row("full", 10 + k, 1000 * 0.9 ** (8 + k), "", 8 + k) for k in range(13)]
    return calm + lost


@pytest.mark.ci
def test_the_picture_is_the_same_file_every_time(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = draw(rows(), 125.0, tmp_path / "a"), draw(rows(), 125.0, tmp_path / "b")
    assert [p.name for p in first] == ["demo.png", "demo.svg"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_it_shows_costs_failures_and_where_the_state_went() -> None:
    fig = figure(rows(), 125.0)
    whole, failure, _ = fig.axes
    legend = whole.get_legend()
    assert legend is not None
    words = [t.get_text() for t in legend.get_texts()]
    assert words[0] == "20 iterations: no failure"
    assert words[1].startswith("22 (+2): half of the servers lost")
    assert "all set back to x(8)" in [t.get_text() for t in failure.texts]
    assert all("loss_sum, nats" in a.get_ylabel() and "iterations" in a.get_xlabel() for a in fig.axes)


def test_runs_that_are_missing_are_left_out() -> None:
    assert len(figure([r for r in rows() if r["run"] == "no-failure"], 125.0).axes) == 3
