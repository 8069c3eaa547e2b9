"""What the exit code of ``scarml`` says, in one place."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from scarml import errors

if TYPE_CHECKING:
    from scarml.control.messages import Outcome

__all__ = [
    "DONE",
    "FAILED",
    "IN_USE",
    "NOT_CONVERGED",
    "STOPPED_AND_SAVED",
    "STORE",
    "USAGE",
    "of_error",
    "of_outcome",
    "of_signal",
]

DONE = 0
FAILED = 1
"""A model of the user raised an exception, the Ray under a run or a process of a sweep has died, or SCAR has a bug."""
USAGE = 2
NOT_CONVERGED = 3
STORE = 4
IN_USE = 5
STOPPED_AND_SAVED = 75
"""EX_TEMPFAIL of sysexits.h: the same command goes on."""

_DONE: tuple[Outcome, ...] = ("converged", "stopped-early")
"""What the run was asked to reach has been reached."""

# The first class that fits counts, so a leaf stands before its parent.
_OF_ERROR: tuple[tuple[type[errors.ScarError], int], ...] = (
    (errors.UsageError, USAGE),
    (errors.StoreError, STORE),
    (errors.RecoveryError, STORE),
    (errors.RunInUseError, IN_USE),
    (errors.SupersededError, IN_USE),
    (errors.StoppedError, STOPPED_AND_SAVED),
    (errors.ClusterLostError, FAILED),
    (errors.ProtocolError, FAILED),
)


def of_error(error: BaseException) -> int:
    """The exit code for an exception.

    Example:
        >>> of_error(errors.DataError("no such file")), of_error(errors.DamagedError("torn")), of_error(ValueError())
        (2, 4, 1)
    """
    if isinstance(error, KeyboardInterrupt):
        return of_signal(signal.SIGINT)
    return next((code for kind, code in _OF_ERROR if isinstance(error, kind)), FAILED)


def of_signal(number: int) -> int:
    """The exit code of a process that a signal ended before everything was saved, as a shell reports it."""
    return 128 + number


def of_outcome(outcome: Outcome, reason: str, *, saved: bool, has_criterion: bool, store_failed: bool) -> int:
    """The exit code for a run that came to its end.

    Args:
        outcome, reason, saved: of the `scarml.result.Result`.
        has_criterion: whether there was a loss to fall below.
        store_failed: whether the last values are not on the store because it refused them.

    Example:
        >>> of_outcome("max-iters", "", saved=True, has_criterion=True, store_failed=False)
        3
    """
    if outcome == "superseded":
        return IN_USE
    if outcome == "store-down" or (store_failed and not saved and outcome in (*_DONE, "max-iters")):
        return STORE
    if outcome == "stopped":
        return STOPPED_AND_SAVED if saved else of_signal(_signal_in(reason))
    if outcome in _DONE or (outcome == "max-iters" and saved and not has_criterion):
        return DONE
    return NOT_CONVERGED


def _signal_in(reason: str) -> int:
    """The signal that `scarml.Job` names as the reason of a stop."""
    name = reason.rpartition(" ")[2]
    return signal.Signals[name] if name in signal.Signals.__members__ else signal.SIGINT
