"""Classes and functions of the user's own, named ``module:Name``: found by import, so in every process alike.

The one place where code is loaded by its name. It happens when a setting is read, before anything is decided.
"""

from __future__ import annotations

import importlib
from typing import Any

from scarml.errors import UsageError

__all__ = ["imported", "is_importable"]


def is_importable(name: str) -> bool:
    """Whether this is ``module:Name`` or ``package.module:Name``, as far as its form goes.

    Example:
        >>> is_importable("mine.policies:Coin"), is_importable("mlr"), is_importable("ratings:data/mine.npz")
        (True, False, False)
    """
    module_name, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module_name.split("."))


def imported(name: str, what: str) -> Any:
    """What a module has under a name at its top level.

    Args:
        name: ``module:Name``.
        what: it is, in a word, for messages.

    Raises:
        UsageError: the module cannot be imported, or has nothing of that name.

    Example:
        >>> imported("fractions:Fraction", "number")
        <class 'fractions.Fraction'>
    """
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever a user's module raises while it is imported
        raise UsageError(
            f"{what} {name!r}: importing {module_name!r} failed with {type(error).__name__}: {error}; "
            "it must be importable from here (installed, or in the current folder or PYTHONPATH)"
        ) from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise UsageError(f"{what} {name!r}: module {module_name!r} has no {attribute!r} at its top level") from None
