"""What the user of the library chooses, checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from scarml.checkpoint.encoding import Encodings
from scarml.checkpoint.selection import Checkpoint
from scarml.control.history import Record
from scarml.errors import UsageError
from scarml.storage.run_start import Resume

__all__ = ["OnError", "Scoring", "Settings"]

Scoring = Literal["exact", "background"]
OnError = Literal["warn", "raise"]


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """What the user chose; see `scarml.RunningCheckpoint`.

    Raises:
        UsageError: a choice is none of those there are.
    """

    checkpoint: Checkpoint
    resume: Resume
    scoring: Scoring
    on_error: OnError
    encodings: Encodings
    seed: int
    on_event: Callable[[Record], None] | None

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("resume", self.resume, ("auto", "must", "never")),
            ("scoring", self.scoring, ("exact", "background")),
            ("on_error", self.on_error, ("warn", "raise")),
        ):
            if value not in choices:
                raise UsageError(f"{name} is {value!r}; choose one of {', '.join(choices)}")
