"""Classes of the user's own, named as ``package.module:Class``."""

from __future__ import annotations

import importlib

from scarml.errors import UsageError

__all__ = ["own_class"]


def own_class(kind: str, name: str) -> type:
    """The class of that name.

    Args:
        kind: what it is to be, for messages: ``model`` for example.
        name: ``"package.module:Class"``; has a colon.

    Raises:
        UsageError: if the module cannot be imported, or has no such class.

    Example:
        >>> own_class("number", "fractions:Fraction").__name__
        'Fraction'
    """
    module_name, _, class_name = name.partition(":")
    if not (module_name and class_name):
        raise UsageError(f"{kind} {name!r} is no name of a class; expected module:Class")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever a user's module raises while it is imported
        raise UsageError(
            f"{kind} {name!r}: importing {module_name!r} failed with {type(error).__name__}: {error}; "
            "it must be importable from here (installed, or in the current folder or PYTHONPATH)"
        ) from error
    found = getattr(module, class_name, None)
    if found is None:
        raise UsageError(f"{kind} {name!r}: module {module_name!r} has no class {class_name!r} at its top level")
    if not isinstance(found, type):
        raise UsageError(f"{kind} {name!r}: {class_name} is not a class")
    return found
