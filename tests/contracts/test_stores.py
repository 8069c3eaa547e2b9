"""Every store passes the contract of stores."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.contracts.s3_server import BUCKET, CREDENTIALS, run_s3_server

from scarml.storage.faulty import FaultyStore
from scarml.storage.fsspec_store import FsspecStore
from scarml.storage.local import LocalStore
from scarml.storage.memory import MemoryStore
from scarml.storage.simulated_disk import SimulatedDisk
from scarml.storage.store import Store
from scarml.testing.store_contract import StoreContract

_number = itertools.count()


class TestLocalStore(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return LocalStore(str(tmp_path / "made" / "on demand"))


class TestLocalStoreOnSimulatedDisk(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return LocalStore("disk/run", SimulatedDisk(np.random.default_rng(0)), token="t")


class TestMemoryStore(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return MemoryStore()


class TestFaultyStoreWithoutFaults(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return FaultyStore(MemoryStore())


class TestFsspecMemory(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return FsspecStore(f"memory://contract-{next(_number)}/run")


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_s3_server(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.mark.ci
class TestS3(StoreContract):
    @pytest.fixture
    def store(self, s3_server: str) -> Store:
        options = {"endpoint_url": s3_server, **CREDENTIALS, "session": _session()}
        return FsspecStore(f"s3://{BUCKET}/contract-{next(_number)}/run", options)


@cache
def _session() -> object:
    """One for all tests: it holds the descriptions of services, which are read in half a second."""
    from aiobotocore.session import AioSession

    return AioSession()
