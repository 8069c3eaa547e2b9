"""A Ray that cannot be started. None is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import scarml as scar
from scarml.engine.ray.connection import RayCluster
from scarml.errors import ClusterError


class BusyMachine:
    """Ray, where its processes take too long."""

    @staticmethod
    def is_initialized() -> bool:
        return False

    @staticmethod
    def init(**_: Any) -> None:
        raise Exception("The current node timed out during startup.\nAnd more.")

    @staticmethod
    def shutdown() -> None:
        pass


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scarml.engine.ray.connection._import_ray", lambda: BusyMachine)
    monkeypatch.setattr("scarml.engine.ray.connection.require_ray", lambda: None)
    monkeypatch.setitem(__import__("sys").modules, "ray", BusyMachine)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.usefixtures("busy")
def test_it_is_said_in_a_sentence() -> None:
    with pytest.raises(ClusterError, match=r"could not be started on this machine: The current node timed out during"):
        RayCluster().open()


@pytest.mark.usefixtures("busy")
def test_nothing_has_been_made_then(tmp_path: Path) -> None:
    job = scar.Job(scar.QP(), engine="ray", run=tmp_path / "run")
    with pytest.raises(ClusterError):
        job.run()
    assert not (tmp_path / "run" / "SCAR-RUN").exists()
