"""Output that cannot be written, or that has characters which its encoding lacks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(shell_redirection: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = f"exec {sys.executable} -m scarml.cli models {shell_redirection}"
    return subprocess.run(
        ["/bin/sh", "-c", command], env=os.environ | environment, capture_output=True, text=True, check=False
    )


def test_an_encoding_without_our_characters_is_no_error() -> None:
    ran = run("", PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\\u03a3" in ran.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_error(closed: str) -> None:
    ran = run(closed)
    assert ran.returncode == 0
    assert "Traceback" not in ran.stderr


def test_a_full_disk_below_stdout_is_one_sentence() -> None:
    ran = run(">/dev/full", PYTHONUNBUFFERED="1")
    assert (ran.returncode, ran.stderr) == (1, "scarml: error: the output cannot be written: No space left on device\n")
