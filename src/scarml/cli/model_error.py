"""When a model of the user's own raises: say which model and in which phase, with the traceback of their code."""

from __future__ import annotations

import inspect
import sys
import traceback
from types import FrameType

from scarml.core.model import Context, Model

__all__ = ["is_in_model", "report_model_error"]


def is_in_model(error: BaseException, model: Model) -> bool:
    """Whether the exception came up inside the code of a model that is not SCAR's own."""
    return not type(model).__module__.startswith("scarml.") and _first_frame(error, model) is not None


def report_model_error(error: BaseException, model: Model) -> None:
    """Tell on stderr, traceback first, a sentence last."""
    frame = _first_frame(error, model)
    assert frame is not None
    traceback.print_exception(error)
    where = _phase(error)
    print(
        f"scarml: error: model {type(model).__module__}:{type(model).__qualname__} raised {type(error).__name__} in "
        f"{frame.f_code.co_name}(){where}: {error}",
        file=sys.stderr,
    )


def _frames(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _first_frame(error: BaseException, model: Model) -> FrameType | None:
    source = inspect.getfile(type(model))
    return next((f for f in _frames(error) if f.f_code.co_filename == source), None)


def _phase(error: BaseException) -> str:
    """Of the innermost frame that has a context: the iteration that was being computed, and the phase."""
    for frame in reversed(_frames(error)):
        for value in frame.f_locals.values():
            if isinstance(value, Context):
                return f", iteration {value.iteration}, phase {value.phase}"
    return ""
