"""Every store passes the contract of stores."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scarml.storage.faulty import FaultyStore
from scarml.storage.local import LocalStore
from scarml.storage.memory import MemoryStore
from scarml.storage.simulated_disk import SimulatedDisk
from scarml.storage.store import Store
from scarml.testing.store_contract import StoreContract


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
