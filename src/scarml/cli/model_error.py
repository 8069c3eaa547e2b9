"""When the code of a user's own model raises: say which model and in which phase, with the traceback of their code."""

from __future__ import annotations

import inspect
import sys
import traceback
from types import FrameType

from scarml.core.model import Context, Model

__all__ = ["is_built_in", "report_model_error"]


def is_built_in(model: type[Model]) -> bool:
    """Whether a model is one of SCAR's own."""
    return model.__module__.startswith("scarml.")


def report_model_error(error: BaseException, model: type[Model]) -> None:
    """Tell on stderr, traceback first, a sentence last.

    Where the exception did not come up in a method of the model, something that the model returned may still be the
    cause; that cannot be known.
    """
    frame = _first_frame(error, model)
    traceback.print_exception(error)
    name = f"{model.__module__}:{model.__qualname__}"
    if frame is not None:
        where = f"{frame.f_code.co_name}(){_phase(error)}"
        text = f"model {name} raised {type(error).__name__} in {where}: {error}"
    else:
        text = (
            f"{type(error).__name__}: {error}\nEither model {name} breaks the protocol of models, which "
            "scarml.testing.check_model can tell, or this is a bug in SCAR"
        )
    print(f"scarml: error: {text}", file=sys.stderr)


def _frames(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _first_frame(error: BaseException, model: type[Model]) -> FrameType | None:
    """The first frame in the model's file, or in a method that the model has from `Model`."""
    source = inspect.getfile(model)

    def is_of_model(frame: FrameType) -> bool:
        return frame.f_code.co_filename == source or isinstance(frame.f_locals.get("self"), model)

    return next((f for f in _frames(error) if is_of_model(f)), None)


def _phase(error: BaseException) -> str:
    """Of the innermost frame that has a context: the iteration that was being computed, and the phase."""
    for frame in reversed(_frames(error)):
        for value in frame.f_locals.values():
            if isinstance(value, Context):
                return f", iteration {value.iteration}, phase {value.phase}"
    return ""
