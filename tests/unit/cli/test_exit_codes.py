from __future__ import annotations

import pytest

from scarml import errors
from scarml.cli.exit_codes import of_error, of_outcome
from scarml.control.messages import Outcome


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError(""), 2),
        (errors.DataError(""), 2),
        (errors.ModelError(""), 2),
        (errors.RunExistsError(""), 2),
        (errors.StoreError(""), 4),
        (errors.NotFoundError(""), 4),
        (errors.AlreadyExistsError(""), 4),
        (errors.DamagedError(""), 4),
        (errors.RecoveryError(""), 4),
        (errors.RunInUseError(""), 5),
        (errors.SupersededError(""), 5),
        (errors.ClusterLostError(""), 1),
        (errors.ProtocolError(""), 1),
        (ValueError(), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_error_has_its_code(error: BaseException, code: int) -> None:
    assert of_error(error) == code


def test_no_error_of_scar_is_forgotten() -> None:
    leaves = {getattr(errors, name) for name in errors.__all__} - {errors.ScarError}
    assert all(of_error(leaf("")) != 1 or leaf in (errors.ProtocolError, errors.ClusterLostError) for leaf in leaves)


@pytest.mark.parametrize(
    ("outcome", "reason", "saved", "has_criterion", "store_failed", "code"),
    [
        ("converged", "", True, True, False, 0),
        ("converged", "", False, True, True, 4),
        ("stopped-early", "", True, True, False, 0),
        ("stopped-early", "", False, True, True, 4),
        ("max-iters", "", True, False, False, 0),
        ("max-iters", "", True, True, False, 3),
        ("max-iters", "", False, False, False, 3),
        ("nodes-lost", "", False, True, False, 3),
        ("store-down", "", False, True, True, 4),
        ("superseded", "", False, True, False, 5),
        ("stopped", "signal SIGINT", True, True, False, 75),
        ("stopped", "signal SIGINT", False, True, True, 130),
        ("stopped", "signal SIGTERM", False, True, False, 143),
    ],
)
def test_every_outcome_has_its_code(
    outcome: Outcome, reason: str, saved: bool, has_criterion: bool, store_failed: bool, code: int
) -> None:
    found = of_outcome(outcome, reason, saved=saved, has_criterion=has_criterion, store_failed=store_failed)
    assert found == code
