"""The ways of saving that `library_saves` compares. Each task gives the seconds of its parts, by name."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

import scarml as scar

Task = Callable[[], Mapping[str, float]]


def alternate_parts(tasks: Mapping[str, Task], between: Callable[[], object], rounds: int) -> dict[str, np.ndarray]:
    """Seconds of every part of every task, shape (rounds,) each; the order changes, and one more round goes before."""
    names = list(tasks)
    seconds: dict[str, list[float]] = {}
    for i in range(-1, rounds):
        between()
        for name in names[i % len(names) :] + names[: i % len(names)]:
            for part, value in tasks[name]().items():
                if i >= 0:
                    seconds.setdefault(part, []).append(value)
    return {part: np.array(values) for part, values in seconds.items()}


class Parameters:
    """The state of a training loop: float32, in blocks of equal size, and a kept buffer of the same size.

    Args:
        n_blocks, block_bytes: of the state.
    """

    def __init__(self, n_blocks: int, block_bytes: int) -> None:
        rng = np.random.default_rng(0)
        self.W = np.empty((n_blocks, block_bytes // 4), np.float32)
        rng.random(dtype=np.float32, out=self.W)
        self._kept = np.zeros_like(self.W)

    def train(self) -> None:
        """One iteration: every block changes, by a distance of its own."""
        np.multiply(self.W, np.float32(1.01), out=self.W)

    def memcpy(self) -> Mapping[str, float]:
        """Copy the whole state."""
        start_s, start_cpu_s = time.perf_counter(), time.thread_time()
        np.copyto(self._kept, self.W)
        return {"memcpy": time.perf_counter() - start_s, "memcpy cpu": time.thread_time() - start_cpu_s}


class RawFiles:
    """Writes bytes of the state to a new file and syncs it.

    Args:
        folder: where to.
        values: the state.
    """

    def __init__(self, folder: str, values: NDArray[np.float32]) -> None:
        self._folder = folder
        self._bytes = memoryview(values.reshape(-1).view(np.uint8))

    def write(self, n_bytes: int, keep: bool = False) -> float:
        """Write that much of it; the seconds that took."""
        path = f"{self._folder}/raw"
        start_s = time.perf_counter()
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        done = 0
        while done < n_bytes:
            done += os.write(descriptor, self._bytes[done:n_bytes])
        os.fsync(descriptor)
        os.close(descriptor)
        seconds = time.perf_counter() - start_s
        if not keep:
            os.unlink(path)
        return seconds

    def write_and_name(self, n_bytes: int) -> float:
        """The same, with the steps that make it safe: another name meanwhile, a rename, and a sync of the folder."""
        start_s = time.perf_counter()
        self.write(n_bytes, keep=True)
        os.rename(f"{self._folder}/raw", f"{self._folder}/raw-named")
        descriptor = os.open(self._folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        seconds = time.perf_counter() - start_s
        os.unlink(f"{self._folder}/raw-named")
        return seconds

    def write_all(self) -> Mapping[str, float]:
        """Write all of it."""
        return {"raw": self.write(len(self._bytes))}


class LibrarySaves:
    """Saves of the library, an eighth each. Made by `opened`.

    Args:
        checkpoint: entered.
        raw: writes as many bytes beside each save.
    """

    def __init__(self, checkpoint: scar.RunningCheckpoint, raw: RawFiles) -> None:
        self._checkpoint = checkpoint
        self._raw = raw
        self._iterations = itertools.count(checkpoint.restore() + 1)

    @classmethod
    @contextmanager
    def opened(cls, folder: str, state: Parameters, scoring: str) -> Iterator[LibrarySaves]:
        """A new run."""
        checkpoint = scar.RunningCheckpoint(
            f"{folder}/run",
            {"W": scar.rows(state.W)},
            scoring="exact" if scoring == "exact" else "background",
            handle_signals=False,
        )
        with checkpoint:
            saves = cls(checkpoint, RawFiles(folder, state.W))
            state.train()
            checkpoint.save(next(saves._iterations))  # with background scoring it has nothing measured yet
            saves.settle()
            yield saves

    def save(self) -> Mapping[str, float]:
        """One save: how long the loop waits, how long until it is durable; then the tidying that follows.

        With background scoring all blocks have been measured meanwhile, as in a loop whose iterations take longer than
        that.
        """
        start_s, start_cpu_s = time.perf_counter(), time.thread_time()
        report = self._checkpoint.save(next(self._iterations))
        returned_s, returned_cpu_s = time.perf_counter(), time.thread_time()
        self._checkpoint.wait()
        durable_s = time.perf_counter()
        if report.outcome != "staged":
            raise RuntimeError(f"a save that was to be measured is {report.outcome}")
        self.settle()
        settled_s = time.perf_counter()
        return {
            "stall": returned_s - start_s,
            "stall cpu": returned_cpu_s - start_cpu_s,
            "store": durable_s - returned_s,
            "durable": durable_s - start_s,
            "settle": settled_s - durable_s,
            "raw": self._raw.write(report.size_bytes),
            "named": self._raw.write_and_name(report.size_bytes),
        }

    def recover(self, lost: NDArray[np.int64]) -> Mapping[str, float]:
        """Fill in lost blocks."""
        start_s = time.perf_counter()
        self._checkpoint.recover({"W": lost})
        return {"recover": time.perf_counter() - start_s}

    def settle(self) -> None:
        """Wait until nothing goes on in the background: a save, compaction, scoring."""
        self._checkpoint.wait()
        self._checkpoint.wait_for_scores()
        session = self._checkpoint._opened()  # compaction is nobody's business but a benchmark's
        while True:
            is_done = threading.Event()
            session._in_background(is_done.set)
            is_done.wait()
            if not session._tidying._is_waiting:
                return


@contextmanager
def torch_saves(folder: str, state: Parameters) -> Iterator[dict[str, Task]]:
    """PyTorch's ways, each of the whole state as one tensor, in one process without a process group."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

    tensors = {"W": torch.from_numpy(state.W)}
    target = f"{folder}/torch"
    # Pinned memory and copies that do not block need a GPU; what is left of the stager's options is that it is kept.
    kept = DefaultStager(StagingOptions(False, False, False, False))

    def plain() -> Mapping[str, float]:
        start_s = time.perf_counter()
        with open(target, "xb") as file:
            torch.save(tensors, file)
            file.flush()
            os.fsync(file.fileno())
        seconds = time.perf_counter() - start_s
        os.unlink(target)
        return {"torch.save": seconds}

    def synchronous() -> Mapping[str, float]:
        start_s = time.perf_counter()
        dcp.save(tensors, checkpoint_id=target, no_dist=True)
        seconds = time.perf_counter() - start_s
        shutil.rmtree(target)
        return {"dcp.save": seconds}

    def asynchronous(name: str, stager: DefaultStager | None) -> Mapping[str, float]:
        start_s = time.perf_counter()
        future = dcp.async_save(tensors, checkpoint_id=target, no_dist=True, async_stager=stager)
        returned_s = time.perf_counter()
        future.result()
        durable_s = time.perf_counter()
        shutil.rmtree(target)
        return {f"{name} stall": returned_s - start_s, f"{name} durable": durable_s - start_s}

    try:
        yield {
            "torch.save": plain,
            "dcp.save": synchronous,
            "async_save": lambda: asynchronous("async_save", None),
            "kept": lambda: asynchronous("kept", kept),
        }
    finally:
        kept.close()
