"""PyTorch, an optional extra: imported when it is first needed, and missed in one sentence."""

from __future__ import annotations

import importlib.util
from typing import Any

from scarml.errors import UsageError

__all__ = ["import_torch", "require_torch"]

_NO_TORCH = "{what} needs PyTorch, which is not installed here; install it with: pip install 'scarml[cnn]'"


def require_torch(what: str) -> None:
    """See that PyTorch is there, without importing it, which takes more than a second.

    Raises:
        UsageError: it is not; the message begins with ``what`` needs it.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError(_NO_TORCH.format(what=what))


def import_torch() -> Any:
    """The module ``torch``.

    Raises:
        UsageError: it is not installed.
    """
    require_torch("this model")
    import torch

    return torch
