from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scarml.data.ratings import Ratings
from scarml.errors import DataError, UsageError
from scarml.models.cnn import CNN
from scarml.models.defaults import Defaults
from scarml.models.lda import LDA
from scarml.models.mf import MF
from scarml.models.mlr import MLR
from scarml.models.qp import QP
from scarml.models.registry import create, data_for, defaults_for, list_models, model_class

USER_MODULE = """
from dataclasses import dataclass
from scarml.core.model import Model
from scarml.models.defaults import Defaults

NOT_A_CLASS = 7

class NotAModel:
    pass

class Plain(Model):
    pass

@dataclass(frozen=True)
class Mine(Model):
    width: int = 3
    defaults = {None: Defaults({"width": 5}, stop_loss_sum=1.5)}

    @classmethod
    def own_data(cls):
        return "my own data"
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "a_users_module.py").write_text(USER_MODULE)
    (tmp_path / "a_broken_module.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "a_users_module", raising=False)
    return "a_users_module"


def test_built_in_names() -> None:
    assert [model_class(name) for name in list_models()] == [MLR, MF, LDA, CNN, QP]
    assert all(model_class(name).name == name for name in list_models())  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["", "mlp", "mlr:", ":MLR", "scarml.models.mlr"])
def test_unknown_name_lists_what_there_is(name: str) -> None:
    with pytest.raises(UsageError, match="expected one of mlr, mf, lda, cnn, qp, or module:Class"):
        model_class(name)


def test_class_of_a_users_own(user_module: str) -> None:
    mine = model_class(f"{user_module}:Mine")
    assert data_for(mine) == "my own data"
    assert create(mine).width == 5  # type: ignore[attr-defined]
    assert create(mine, width=7).width == 7  # type: ignore[attr-defined]
    assert create(mine, "mnist").width == 3  # type: ignore[attr-defined]
    assert defaults_for(mine).stop_loss_sum == 1.5
    assert defaults_for(mine, "mnist") == Defaults()


def test_class_that_declares_nothing(user_module: str) -> None:
    plain = model_class(f"{user_module}:Plain")
    assert data_for(plain) is None
    assert defaults_for(plain, "mnist") == Defaults()
    create(plain)
    with pytest.raises(UsageError, match="Plain has no hyper-parameter 'width'; it has none"):
        create(plain, width=1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a_missing_module:Mine", "importing 'a_missing_module' failed with ModuleNotFoundError"),
        ("a_broken_module:Mine", "importing 'a_broken_module' failed with ZeroDivisionError"),
        ("a_users_module:Other", "has no 'Other' at its top level"),
        ("a_users_module:NotAModel", "NotAModel is not a subclass of scarml.Model"),
        ("a_users_module:NOT_A_CLASS", "NOT_A_CLASS is not a subclass"),
    ],
)
@pytest.mark.usefixtures("user_module")
def test_what_is_wrong_with_a_users_class_is_said(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        model_class(name)


def test_hyper_parameters_of_the_data_set_and_given_ones() -> None:
    assert create(MLR, "mnist-10k") == MLR(learning_rate=5e-6, batch_size=2500)
    assert create(MLR, "mnist-10k", learning_rate=1.0) == MLR(learning_rate=1.0, batch_size=2500)
    with pytest.raises(UsageError, match="MLR has no hyper-parameter 'lr'; it has learning_rate, batch_size"):
        create(MLR, lr=1.0)


def test_data_of_built_in_models() -> None:
    assert data_for(QP) is None
    assert data_for(MLR, "mnist-10k").n_examples == 10_000
    with pytest.raises(UsageError, match="MLR needs a data set; name one of mnist, mnist-10k"):
        data_for(MLR)
    with pytest.raises(DataError, match="no data set 'other'"):
        data_for(MF, "other")


@pytest.mark.usefixtures("data_dir")
def test_movielens_is_ratings() -> None:
    assert isinstance(data_for(MF, "movielens"), Ratings)
