from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from scarml.cli import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Scarml = Callable[..., Ran]


@pytest.fixture
def scarml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Scarml:
    """Runs the command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Ran:
        monkeypatch.setattr("sys.argv", ["scarml", *args])
        code = _exit_code(args)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


def _exit_code(args: Sequence[str]) -> int:
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert isinstance(stop.value.code, int)
    return stop.value.code
