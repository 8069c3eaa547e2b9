"""Every error that SCAR raises on purpose, as one tree.

::

    ScarError
    ├── UsageError              the caller asked for something that cannot be        exit 2
    │   ├── DataError           a data set is missing, incomplete or malformed
    │   ├── ModelError          a model breaks the contract of `core.model.Model`
    │   ├── ClusterError        there is no Ray to run on, or no room in it
    │   └── RunExistsError      the run folder already holds a run; choose --resume
    ├── StoreError              the store could not do what was asked; try again     exit 4
    │   ├── NotFoundError       there is no object of that name
    │   ├── AlreadyExistsError  exclusive create met an object of that name
    │   └── DamagedError        bytes on the store are not what was written
    ├── RunInUseError           another process owns the run                         exit 5
    ├── SupersededError         a newer term has been claimed; this process must stop exit 5
    ├── ClusterLostError        the Ray under a run, or a process of a sweep, has died exit 1
    ├── StoppedError            a signal asked to stop, and everything has been saved exit 75
    ├── RecoveryError           lost blocks could not be brought back                exit 4
    └── ProtocolError           a node or an engine broke the protocol: a bug in SCAR

Each leaf is one thing that a caller can act on. The message says what was wrong, where, what was expected and what
to do. The command line maps the tree to exit codes in one place (`scarml.cli.exit_codes`).
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AlreadyExistsError",
    "ClusterError",
    "ClusterLostError",
    "DamagedError",
    "DataError",
    "ModelError",
    "NotFoundError",
    "ProtocolError",
    "RecoveryError",
    "RunExistsError",
    "RunInUseError",
    "ScarError",
    "StoppedError",
    "StoreError",
    "SupersededError",
    "UsageError",
]


class ScarError(Exception):
    """Root of everything that SCAR raises on purpose."""


class UsageError(ScarError):
    """An argument or an option is wrong; nothing was done."""


class DataError(UsageError):
    """A data set is missing, incomplete or malformed; the message names the file and what was expected."""


class ModelError(UsageError):
    """A model returned something that its own tables or the `Model` protocol do not allow."""


class ClusterError(UsageError):
    """There is no Ray at the address, or it has no room for the processes; nothing was trained."""


class ClusterLostError(ScarError):
    """The Ray under a run, or a process of a sweep, has died. What was committed is safe; the same can be resumed."""


class RunExistsError(UsageError):
    """The folder holds a run already, and the caller did not ask to resume it."""


class StoreError(ScarError):
    """The store failed: full, unreachable, not permitted. What was committed before is untouched."""


class NotFoundError(StoreError):
    """There is no object of that name on the store."""


class AlreadyExistsError(StoreError):
    """An exclusive create found an object of that name: somebody else was first."""


class DamagedError(StoreError):
    """An object is not what was written: torn, altered, or not of this format."""


class RunInUseError(ScarError):
    """Another live process owns the run."""


class SupersededError(ScarError):
    """A newer term has been claimed on this run; whatever this process writes no longer counts."""


class StoppedError(ScarError):
    """A signal asked a loop of the user's own to stop, and everything has been saved; exit with code 75."""


class RecoveryError(ScarError):
    """Lost blocks could not be restored within the time allowed; the run can be resumed later."""


class ProtocolError(ScarError):
    """An impossible message or move. Carries the story: the last events about what went wrong."""

    def __init__(self, message: str, story: Sequence[str] = ()) -> None:
        self.story = tuple(story)
        lines = [message, *(f"  {line}" for line in self.story)]
        super().__init__("\n".join(lines))
