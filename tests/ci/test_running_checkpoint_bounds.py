"""Thousands of saves of tiny tables: memory, threads, open files and the space on disk stay within bounds."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import scarml as scar

pytestmark = pytest.mark.ci


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def stored(folder: Path) -> tuple[int, int]:
    """Files below a folder, and their bytes."""
    sizes = [f.stat().st_size for f in folder.rglob("*") if f.is_file()]
    return len(sizes), sum(sizes)


@pytest.mark.parametrize(
    ("scoring", "n_saves"),
    [
        ("exact", 2_000),
        ("background", 400),
        pytest.param("exact", 10_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_thousands_of_saves(tmp_path: Path, scoring: str, n_saves: int) -> None:
    W, b = np.zeros((40, 10), np.float32), np.zeros(10)
    n_threads = threading.active_count()
    rng = np.random.default_rng(0)
    state = {"rng": rng.bit_generator.state}
    at = {}
    with scar.RunningCheckpoint(tmp_path / "run", {"W": W, "b": b}, resume="auto", scoring=scoring) as ckpt:  # type: ignore[arg-type]
        ckpt.restore(extra=state)
        for k in range(1, n_saves + 1):
            W += rng.normal(size=W.shape).astype(np.float32)
            b += 1
            ckpt.save(k, extra={"rng": rng.bit_generator.state})
            ckpt.wait()
            if k % (n_saves // 2) == 0:
                at[k] = (rss_bytes(), len(os.listdir("/proc/self/fd")), threading.active_count(), *stored(tmp_path))
        assert ckpt.status().n_saves == n_saves + 1
    (rss, fds, threads, n_files, n_bytes), last = at[n_saves // 2], at[n_saves]
    assert last[0] - rss < 8 << 20, "memory grows"
    assert last[1] - fds <= 2, "open files grow"  # one may just be open
    assert last[2] == threads
    assert threading.active_count() == n_threads
    assert max(n_files, last[3]) < 200
    assert max(n_bytes, last[4]) < 2 * W.nbytes + (16 << 20)
    again = np.zeros_like(W)
    with scar.RunningCheckpoint(tmp_path / "run", {"W": again, "b": np.zeros(10)}, resume="must") as ckpt:
        assert ckpt.restore(extra=state) == n_saves
    assert again.tobytes() == W.tobytes()
    assert state["rng"] == rng.bit_generator.state
