"""What of the CNN needs no torch: the step of Adam, how parameters are cut, settings, and how torch is missed."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import scarml as scar
from scarml.core.rng import stream
from scarml.errors import UsageError
from scarml.models.cnn import CNN, Adam, TorchModel
from scarml.models.cnn.adam import adam_step, adam_step_reference
from scarml.models.cnn.cut import cut_parameters
from scarml.models.registry import create, model_class


def blocks_for_adam(seed: int) -> dict[str, Any]:
    rng = stream(seed, "adam")
    lengths = np.array([5, 0, 3, 9])
    n = int(lengths.sum())
    value, m, gradient = (rng.standard_normal(n).astype(np.float32) for _ in range(3))
    settings = np.array([Adam().row, Adam(0.1).row, (0.0,) * 5, Adam(0.01, 0.5, 0.9, 1e-3, 0.2).row])
    v = rng.random(n).astype(np.float32)
    step = np.array([0, 4, 0, 100], np.int32)
    state = {"value": value, "m": m, "v": v, "step": step}
    return {**state, "gradient": gradient, "lengths": lengths, "settings": settings}


@pytest.mark.parametrize("seed", range(3))
def test_the_step_of_adam_is_that_of_plain_numpy(seed: int) -> None:
    fast, plain, before = (blocks_for_adam(seed) for _ in range(3))
    for _ in range(3):
        adam_step(**fast)
        adam_step_reference(**plain)
    for name in ("value", "m", "v", "step"):
        np.testing.assert_allclose(fast[name], plain[name], rtol=1e-6, atol=1e-7)
    frozen = slice(5, 8)
    assert all((fast[name][frozen] == before[name][frozen]).all() for name in ("value", "m", "v"))
    assert fast["step"].tolist() == [3, 7, 0, 103]


def test_a_block_alone_makes_the_same_step_as_among_others() -> None:
    together, alone = blocks_for_adam(1), blocks_for_adam(1)
    adam_step(**together)
    last = {name: alone[name][8:] for name in ("value", "m", "v", "gradient")}
    rest = {name: alone[name][3:] for name in ("step", "lengths", "settings")}
    adam_step(**last, **rest)
    assert last["value"].tobytes() == together["value"][8:].tobytes()


def test_cuts_follow_the_first_axis_and_cover_everything() -> None:
    cut = cut_parameters([(7, 2, 3), (), (2,), (0, 4)], "by-shard", slices=3)
    assert cut.lengths.tolist() == [18, 12, 12, 1, 1, 1, 0]
    assert cut.parameter.tolist() == [0, 0, 0, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate is 0.0; expected a finite number above 0"),
        ({"beta_2": 1.0}, "beta_2 is 1.0; expected at least 0 and below 1"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"batch_size": 0}, "batch_size is 0; expected at least 1"),
        ({"batches_per_iteration": 0}, "batches_per_iteration is 0; expected at least 1"),
        ({"blocks": "by-row"}, "blocks 'by-row' are unknown; choose by-layer, by-shard, slices-by-layer"),
        ({"slices": 0}, "slices is 0; expected at least 1"),
        ({"restores": "moments"}, "restores 'moments' is unknown; choose all, weights"),
        ({"side": 15}, "side is 15; expected at least 16"),
        ({"n_classes": 0}, "n_classes is 0; expected at least 1"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CNN(**settings)


def test_weight_decay_out_of_range() -> None:
    with pytest.raises(UsageError, match="weight_decay is -1"):
        Adam(weight_decay=-1)


def test_torch_is_missed_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"^CNN needs PyTorch, which is not installed here; install it with: pip"):
        create(model_class("cnn"), "mnist-10k")
    with pytest.raises(UsageError, match=r"^TorchModel needs PyTorch.*pip install 'scarml\[cnn\]'$"):
        scar.TorchModel(int, max)
    assert TorchModel is scar.TorchModel
