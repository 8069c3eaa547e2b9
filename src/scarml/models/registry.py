"""Finding a model by name, its data, and settings that are right for both.

A model is one of the built-in names, or ``module:Class`` for a class of the user's own that can be imported. Such a
class is a `scarml.core.model.Model`, and a dataclass if it takes hyper-parameters. It gets its data in one of two ways:

* ``--data NAME``: what `scarml.data.registry.load` returns for that name, which may be ``module:function`` for data of
  the user's own;
* without ``--data``: what its classmethod ``own_data()`` returns, or None if it has no such method.

It may also declare ``defaults``, a mapping from data set names (None for its own data) to `Defaults`.
"""

from __future__ import annotations

import inspect
from typing import Any, cast

from scarml.core.model import Model
from scarml.data.registry import load
from scarml.errors import UsageError
from scarml.models.defaults import Defaults
from scarml.plugins import imported

__all__ = ["create", "data_for", "defaults_for", "list_models", "model_class"]

# Names of classes, so that listing them imports none of the packages that they need.
_BUILT_IN = {
    "mlr": "scarml.models.mlr:MLR",
    "mf": "scarml.models.mf:MF",
    "lda": "scarml.models.lda:LDA",
    "cnn": "scarml.models.cnn:CNN",
    "qp": "scarml.models.qp:QP",
}


def list_models() -> list[str]:
    """The names of the built-in models."""
    return list(_BUILT_IN)


def model_class(name: str) -> type[Model]:
    """The class of a built-in model, or of a user's own.

    Args:
        name: ``"mlr"`` and its like, or ``"package.module:Class"``.

    Raises:
        UsageError: if there is no such model, or it is no `Model`.

    Example:
        >>> model_class("mlr").__name__
        'MLR'
    """
    where = _BUILT_IN.get(name, name)
    module_name, colon, class_name = where.partition(":")
    if not (colon and module_name and class_name):
        known = ", ".join(_BUILT_IN)
        raise UsageError(f"there is no model {name!r}; expected one of {known}, or module:Class for one of your own")
    found = imported(where, "model")
    if not (isinstance(found, type) and Model in found.__mro__):
        raise UsageError(f"model {name!r}: {class_name} is not a subclass of scarml.Model")
    return cast(type[Model], found)


def defaults_for(model: type[Model], data_set: str | None = None) -> Defaults:
    """What the model declares for a data set (None: its own data); empty if it declares nothing.

    Example:
        >>> defaults_for(model_class("mlr"), "mnist").stop_loss_sum
        25000.0
    """
    declared = getattr(model, "defaults", {})  # optional for users' models, so not part of the protocol
    return cast(Defaults, declared.get(data_set, Defaults()))


def create(model: type[Model], data_set: str | None = None, **hyper_parameters: Any) -> Model:
    """A model with the hyper-parameters given; for the others what it declares for this data set, or its own defaults.

    Raises:
        UsageError: if it has no such hyper-parameter, or one is out of range.

    Example:
        >>> create(model_class("mlr"), "mnist-10k", batch_size=500)
        MLR(learning_rate=5e-06, batch_size=500)
    """
    parameters = {n: p for n, p in inspect.signature(model).parameters.items() if n not in ("args", "kwargs")}
    known = list(parameters)
    unknown = sorted(set(hyper_parameters) - set(known))
    if unknown:
        raise UsageError(f"{model.__name__} has no hyper-parameter {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    given = {**defaults_for(model, data_set).hyper_parameters, **hyper_parameters}
    missing = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in given]
    if missing:
        raise UsageError(f"{model.__name__} needs a value for its hyper-parameter {missing[0]!r}; it has no default")
    return model(**given)


def data_for(model: type[Model], data_set: str | None = None) -> Any:
    """The data set of that name, or without a name the model's own data.

    Raises:
        UsageError: if the data set is missing or damaged, or no name is given to a model that declares only named ones.
    """
    if data_set is not None:
        return load(data_set)
    own_data = getattr(model, "own_data", None)  # optional, as above
    if own_data is not None:
        return own_data()
    declared = getattr(model, "defaults", {})
    if declared and None not in declared:
        raise UsageError(f"{model.__name__} needs a data set; name one of {', '.join(map(str, declared))}")
    return None
