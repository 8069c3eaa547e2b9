"""The settings of ``scarml train``, from four places: flag, then ``SCAR_*``, then config file, then default.

A setting has one name everywhere: ``--eval-every`` is ``SCAR_EVAL_EVERY`` in the environment and ``eval_every`` (or
``eval-every``) in the file. What came out is kept in the run's description, and can be fed back as a config file.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scarml.cli.config_file import read_config
from scarml.errors import UsageError

__all__ = ["Settings", "from_everywhere", "parse_hyper_parameter"]

SHORTEST_SILENCE_S = 1.0
"""Nodes give a sign of life four times a second, and a process may be held up for a moment without being lost."""

HyperParameter = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Settings:
    """All that ``scarml train`` can be told about a run; names as on the command line.

    Raises:
        UsageError: one sentence for a value that is out of range.
    """

    model: str = ""
    data: str | None = None
    servers: int = 4
    workers: int = 2
    engine: str = "inprocess"
    ray_address: str | None = None
    replace: bool = False
    silence: float = 10.0
    run: str | None = None
    resume: str = "never"
    policy: str = "priority"
    fraction: str | None = None
    interval: int = 8
    recovery: str = "partial"
    preset: str = "paper"
    budget_in: str | None = None
    rank_by: str | None = None
    encode: str | None = None
    phase_aware: bool | None = None
    kill: tuple[str, ...] = ()
    fail_rate: float = 0.0
    stop_loss_sum: float | None = None
    stop_loss_mean: float | None = None
    max_iters: int | None = None
    eval_every: int = 1
    held_out: float | str | None = None
    metrics_every: int | None = None
    patience: int | None = None
    metric: str | None = None
    min_delta: float = 0.0
    seed: int = 0
    shards: int = 16
    threads: int = 2
    pace: float = 0.0
    set: Mapping[str, HyperParameter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.model:
            raise UsageError("no model is given; expected mlr, mf, lda, cnn, qp or module:Class, see scarml models")
        if self.run is not None and not self.run.strip():
            raise UsageError("--run is empty; expected the path of a folder")
        if self.resume not in ("auto", "must", "never"):
            raise UsageError(f"--resume {self.resume!r} is unknown; choose auto, must or never")
        if self.run is None and self.resume == "must":
            raise UsageError("--resume must needs a run to go on with; name its folder with --run")
        if self.engine not in ("inprocess", "ray"):
            raise UsageError(f"--engine {self.engine!r} is unknown; choose inprocess or ray")
        self._check_numbers()
        if self.stop_loss_sum is not None and self.stop_loss_mean is not None:
            raise UsageError("--stop-loss-sum and --stop-loss-mean are both given; choose one criterion")

    def _check_numbers(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{_flag(name)} is {value}; expected at least 1")
        if self.seed < 0:
            raise UsageError(f"--seed is {self.seed}; expected 0 or more")
        for name in ("fail_rate", "stop_loss_sum", "stop_loss_mean", "min_delta", "pace", "silence"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise UsageError(f"{_flag(name)} is {value}; expected a finite number")
        if self.silence < SHORTEST_SILENCE_S:
            raise UsageError(f"--silence is {self.silence:g}; expected {SHORTEST_SILENCE_S:g} seconds or more")
        if self.pace < 0:
            raise UsageError(f"--pace is {self.pace}; expected 0 seconds or more")

    def to_config(self) -> dict[str, Any]:
        """What a config file says to get the same run again, wherever it is kept."""
        config = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("run", "resume")}
        config["kill"], config["set"] = list(self.kill), dict(self.set)
        return {name: value for name, value in config.items() if value is not None}


def from_everywhere(flags: Mapping[str, Any], config: str | None) -> Settings:
    """Put the settings together.

    Args:
        flags: from the command line; None, or an empty list, where a flag is not given.
        config: path of a config file.

    Raises:
        UsageError: an unknown name, or a value that is not understood; names the place.
    """
    config = config or os.environ.get("SCAR_CONFIG") or None
    values = dict(_from_file(Path(config))) if config else {}
    for f in dataclasses.fields(Settings):
        variable = f"SCAR_{f.name.upper()}"
        text = os.environ.get(variable, "")
        if text:
            values[f.name] = _convert(f.name, text, variable)
        given = flags.get(f.name)
        if given is not None and given != []:
            values[f.name] = _convert(f.name, given, _flag(f.name))
    settings = Settings(**values)
    if settings.engine != "ray":
        # From the environment or a file they may stand for runs of both kinds; who gives a flag means this run.
        for name in ("ray_address", "silence"):
            if flags.get(name) is not None:
                raise UsageError(
                    f"{_flag(name)} needs --engine ray: in one process there is nobody to reach or to miss"
                )
    return settings


def _from_file(path: Path) -> Mapping[str, Any]:
    known = {f.name for f in dataclasses.fields(Settings)}
    values = {}
    for key, value in read_config(path).items():
        name = key.replace("-", "_")
        if name not in known:
            raise UsageError(f"{path}: there is no setting {key!r}; there are {', '.join(sorted(known))}")
        values[name] = _convert(name, value, f"{path}: {key}")
    return values


# ------------------------------------------------------------------------------------------------------------- values
def _convert(name: str, value: Any, where: str) -> Any:
    """A value of the type that the setting has, whatever it came as."""
    convert: Callable[[Any], Any] = _CONVERTERS.get(name, _text)
    try:
        return convert(value)
    except (TypeError, ValueError) as e:
        shown = " ".join(map(str, value)) if isinstance(value, list) else value
        raise UsageError(f"{where} is {shown!r}; expected {e}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("text in quotes")
    return value


def _whole_number(value: Any) -> int:
    try:
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return int(value)
    except ValueError:
        pass
    raise ValueError("a whole number")


def _number(value: Any) -> float:
    try:
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            return float(value)
    except ValueError:
        pass
    raise ValueError("a number")


def _share_or_name(value: Any) -> float | str:
    try:
        return _number(value)
    except ValueError:
        if isinstance(value, str) and value.strip():
            return value
    raise ValueError("a share such as 0.1, test, or the name or path of other data")


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _SWITCH:
        return _SWITCH[value.strip().lower()]
    raise ValueError("true or false")


def _fraction(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError('a number, or a fraction such as "1/8"')
    return str(value)


def _list(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(i, str) for i in items):
        raise TypeError("a list such as servers:2@20,workers:1@30")
    return tuple(i.strip() for i in items)


def _hyper_parameters(value: Any) -> dict[str, HyperParameter]:
    if isinstance(value, Mapping):
        if not all(isinstance(v, (bool, int, float, str)) for v in value.values()):
            raise TypeError("numbers, text, true or false for each name")
        return dict(value)
    if not isinstance(value, (str, list, tuple)) or not all(isinstance(item, str) for item in value):
        raise TypeError("a table of names and values, such as learning_rate = 1e-5")
    return dict(parse_hyper_parameter(item) for item in _list(value))


def parse_hyper_parameter(text: str) -> tuple[str, HyperParameter]:
    """From ``name=value``.

    Example:
        >>> parse_hyper_parameter("learning_rate=1e-5"), parse_hyper_parameter("batch_size=500")
        (('learning_rate', 1e-05), ('batch_size', 500))
    """
    name, equals, value = text.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise ValueError("name=value, for example learning_rate=1e-5")
    value = value.strip()
    if value.lower() in ("true", "false"):
        return name.strip(), value.lower() == "true"
    try:
        return name.strip(), int(value)
    except ValueError:
        pass
    try:
        return name.strip(), float(value)
    except ValueError:
        return name.strip(), value


def _flag(name: str) -> str:
    return "MODEL" if name == "model" else "--" + name.replace("_", "-")


_SWITCH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_COUNTS = (
    "servers",
    "workers",
    "interval",
    "max_iters",
    "eval_every",
    "metrics_every",
    "patience",
    "shards",
    "threads",
)
"""Whole numbers of at least 1, where they are given."""
_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys((*_COUNTS, "seed"), _whole_number),
    **dict.fromkeys(("fail_rate", "stop_loss_sum", "stop_loss_mean", "min_delta", "pace", "silence"), _number),
    "held_out": _share_or_name,
    "replace": _switch,
    "phase_aware": _switch,
    "fraction": _fraction,
    "kill": _list,
    "set": _hyper_parameters,
}
