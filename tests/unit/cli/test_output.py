"""Output that cannot be written, or that has characters which its encoding lacks."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from scarml.cli import main

COMMANDS = ["--version", pytest.param("models", marks=pytest.mark.ci)]  # a line at once; a table that takes a second


def run(command: str, shell_redirection: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = f"exec {sys.executable} -m scarml.cli {command} {shell_redirection}"
    return subprocess.run(
        ["/bin/sh", "-c", command], env=os.environ | environment, capture_output=True, text=True, check=False
    )


def test_an_encoding_without_our_characters_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with pytest.raises(SystemExit, match="0"):
        main(["models"])
    assert b"\\u03a3" in written.getvalue()


@pytest.mark.ci
def test_an_encoding_that_the_environment_names_is_no_error() -> None:
    ran = run("models", "", PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\\u03a3" in ran.stdout


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_error(closed: str, command: str) -> None:
    ran = run(command, closed)
    assert ran.returncode == 0
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_below_stdout_is_one_sentence(command: str) -> None:
    ran = run(command, ">/dev/full", PYTHONUNBUFFERED="1")
    assert (ran.returncode, ran.stderr) == (1, "scarml: error: the output cannot be written: No space left on device\n")
