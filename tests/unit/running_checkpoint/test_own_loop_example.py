"""examples/own_loop.py: it trains, and goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.own_loop import main
from tests.unit.running_checkpoint.loops import bits


def test_the_example_goes_on_bit_identical(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unbroken = main(tmp_path / "unbroken", n_iters=12, batch=50)
    main(tmp_path / "run", n_iters=5, batch=50)
    resumed = main(tmp_path / "run", n_iters=12, batch=50)
    assert bits(resumed) == bits(unbroken)
    assert "begins at iteration 5" in capsys.readouterr().out
