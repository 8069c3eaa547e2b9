"""From settings to a run, its progress and its result. What ``scarml train`` does once it has its settings."""

from __future__ import annotations

import inspect
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from scarml.checkpoint.selection import Checkpoint
from scarml.cli.budget_words import budget_in_words
from scarml.cli.exit_codes import FAILED, STOPPED_AND_SAVED, of_error, of_outcome, of_signal
from scarml.cli.model_error import is_built_in, report_model_error
from scarml.cli.node_words import nodes_in_words
from scarml.cli.pace import Pace
from scarml.cli.progress import open_progress, write_line
from scarml.cli.run_name import run_folder
from scarml.cli.run_status import Criterion, RunStatus
from scarml.cli.settings import Settings
from scarml.cli.summary import in_lines
from scarml.cli.wording import counted
from scarml.control.history import Record
from scarml.control.stop import Stop
from scarml.core.model import Model
from scarml.engine.fault_plan import Kill
from scarml.errors import ClusterLostError, ScarError, UsageError
from scarml.models import registry
from scarml.storage.json_text import to_json_text

if TYPE_CHECKING:
    from scarml.job import Job
    from scarml.result import Result

__all__ = ["Output", "checkpoint_of", "run_settings"]


@dataclass(frozen=True, slots=True)
class Output:
    """How to show a run.

    Args:
        as_json: the result as JSON.
        log_format: of progress.
        verbosity: −1 silent, 0, 1, …
    """

    as_json: bool = False
    log_format: str = "text"
    verbosity: int = 0


def run_settings(settings: Settings, output: Output) -> int:
    """Train as the settings say.

    Returns:
        The exit code.
    """
    checkpoint = checkpoint_of(settings)
    kills = [Kill.parse(text) for text in settings.kill]
    model_class = registry.model_class(settings.model)
    try:
        return _train(settings, output, checkpoint, kills, model_class)
    except (Exception, SystemExit) as e:  # of the user's own code too, at whatever moment it was called
        if isinstance(e, ScarError) or is_built_in(model_class):
            raise
        report_model_error(e, model_class)
        return FAILED


def _train(
    settings: Settings, output: Output, checkpoint: Checkpoint, kills: Sequence[Kill], model_class: type[Model]
) -> int:
    model = _model(model_class, settings)
    criterion = _criterion(model_class, settings)
    status = RunStatus(f"{settings.model} on {settings.data}" if settings.data else settings.model, criterion)
    progress = open_progress(status, output.verbosity, output.log_format)
    pace = Pace(settings.pace, is_over=lambda: job.is_stopping)

    def on_event(record: Record) -> None:
        progress.take_in(record)
        pace.take_in(record)

    with run_folder(settings.run, settings.model, settings.data) as folder:
        job = _job(settings, model, checkpoint, kills, criterion, folder, on_event)
        status.ages, status.is_stopping = job.saved_iterations, lambda: job.is_stopping
        try:
            with progress:
                progress.say(f"run folder: {folder}")
                if nodes := nodes_in_words(settings):
                    progress.say(f"nodes: {nodes}")
                progress.say(f"checkpoint: {budget_in_words(checkpoint, job.tables)}; recovery: {checkpoint.recovery}")
                result = job.run()
        except KeyboardInterrupt:
            _say_how_to_go_on("interrupted before everything was saved", output, folder)
            return of_signal(signal.SIGINT)
        except ClusterLostError as e:
            _say_how_to_go_on(str(e), output, folder)
            return of_error(e)
    code = of_outcome(
        result.outcome,
        result.reason,
        saved=result.saved,
        has_criterion=criterion is not None,
        store_failed=status.store_failed,
    )
    _show(result, folder, output)
    for line in _afterword(result, code, folder, status, job):
        if output.verbosity >= 0 or line.startswith("scarml: error: "):
            write_line(line)
    return code


# ---------------------------------------------------------------------------------------------------- from the settings
def checkpoint_of(s: Settings) -> Checkpoint:
    """What the settings say about saves. UsageError if that makes no sense."""
    how = {name: getattr(s, name) for name in ("budget_in", "rank_by", "encode", "phase_aware")}
    return Checkpoint.preset(
        s.preset,
        policy=s.policy,
        fraction=s.fraction if s.fraction is not None else "1" if s.policy == "full" else "1/8",
        interval_iters=s.interval,
        recovery=s.recovery,
        **{name: value for name, value in how.items() if value is not None},
    )


def _model(model_class: type[Model], s: Settings) -> Model:
    """The model, with hyper-parameters of the types that its own defaults have."""
    parameters = inspect.signature(model_class).parameters
    typed: dict[str, Any] = {}
    for name, value in s.set.items():
        default = parameters[name].default if name in parameters else None
        if isinstance(default, float) and type(value) is int:
            value = float(value)
        if isinstance(default, (bool, int, float, str)) and type(value) is not type(default):
            raise UsageError(f"--set {name}={value} is no {type(default).__name__}; {name} is for example {default!r}")
        typed[name] = value
    return registry.create(model_class, s.data, **typed)


def _criterion(model_class: type[Model], s: Settings) -> Criterion | None:
    if s.stop_loss_mean is not None:
        return Criterion("loss_mean", s.stop_loss_mean)
    if s.stop_loss_sum is not None:
        return Criterion("loss_sum", s.stop_loss_sum)
    if s.patience is not None:
        return None  # who asks for early stopping does not want to stop before for a reason of ours
    default = registry.defaults_for(model_class, s.data).stop_loss_sum
    trained_on = 1 - s.held_out if isinstance(s.held_out, float) else 1.0  # ours is a sum over the whole data set
    return Criterion("loss_sum", default * trained_on) if default is not None else None


def _job(
    s: Settings,
    model: Model,
    checkpoint: Checkpoint,
    kills: Sequence[Kill],
    criterion: Criterion | None,
    folder: Path | str,
    on_event: Callable[[Record], None],
) -> Job:
    from scarml.job import EngineName, Job

    by_sum = criterion.below if criterion and criterion.name == "loss_sum" else None
    return Job(
        model,
        s.data if s.data is not None else registry.data_for(type(model)),
        servers=s.servers,
        workers=s.workers,
        checkpoint=checkpoint,
        stop=Stop(
            loss_sum_below=by_sum,
            max_iters=s.max_iters,
            eval_every_iters=s.eval_every,
            patience=s.patience,
            metric=s.metric,
            min_delta=s.min_delta,
        ),
        loss_mean_below=criterion.below if criterion and by_sum is None else None,
        held_out=s.held_out,
        metrics_every=s.metrics_every,
        run=folder,
        resume=cast(Literal["auto", "must", "never"], s.resume),
        seed=s.seed,
        shards=s.shards,
        threads=s.threads,
        engine=cast(EngineName, s.engine),
        ray_address=s.ray_address if s.engine == "ray" else None,
        replace=s.replace,
        silence_s=s.silence,
        kills=kills,
        fail_rate=s.fail_rate,
        on_event=on_event,
        config=s.to_config(),
        handle_signals=True,
    )


# ------------------------------------------------------------------------------------------------------------- the end
def _show(result: Result, folder: Path | str, output: Output) -> None:
    """The result, on stdout."""
    if output.as_json:
        print(to_json_text({**result.to_json(), "run": str(folder)}))
        return
    for line in in_lines(result, str(folder)):
        print(line)


def _say_how_to_go_on(why: str, output: Output, folder: Path | str) -> None:
    """After an end without a result."""
    write_line(f"scarml: error: {why}")
    if output.verbosity >= 0:
        write_line(f"To go on: {command_to_go_on(sys.argv[1:], folder)}")


def _afterword(result: Result, code: int, folder: Path | str, status: RunStatus, job: Job) -> list[str]:
    """What the user should know or do now."""
    lines = [
        f"scarml: warning: {counted(len(job.unfired_kills), '--kill')} did not happen, the first one on "
        f"x({kill.at_iter}): {_why_not(kill, result)}"
        for kill in job.unfired_kills[:1]
    ]
    if status.n_skipped:
        lines.append(
            f"scarml: warning: {counted(status.n_skipped, 'save')} fell due while the one before was still being "
            f"written, and {'was' if status.n_skipped == 1 else 'were'} skipped; the next one is then up to twice as "
            "large"
        )
    if not result.saved and result.outcome != "superseded":
        cause = status.store_trouble or "see above"
        lines.append(f"scarml: warning: the values of x({result.iteration}) are not all saved: {cause}")
    if result.outcome in ("nodes-lost", "store-down", "superseded"):
        lines.append(f"scarml: error: {result.reason}")
    if code == STOPPED_AND_SAVED or result.outcome in ("nodes-lost", "store-down", "stopped"):
        happened = bool(result.failures)
        lines.append(f"To go on: {command_to_go_on(sys.argv[1:], folder, job.unfired_kills if happened else None)}")
    return lines


def _why_not(kill: Kill, result: Result) -> str:
    if kill.at_iter > result.iteration:
        return f"the run ended at x({result.iteration})"
    if result.resumed_from and kill.at_iter <= result.resumed_from["iteration"]:
        return f"the run went on at x({result.resumed_from['iteration']})"
    return "nobody of that kind was left to lose" if kill.at_iter < result.iteration else "the run ended there"


def command_to_go_on(args: Sequence[str], folder: Path | str, kills: Sequence[Kill] | None = None) -> str:
    """The same command, with ``--resume auto``; and if ``kills`` are given, with these losses only.

    Example:
        >>> command_to_go_on(["train", "mlr", "--resume=never", "--servers", "2"], Path("runs/a"))
        'scarml train mlr --servers 2 --run runs/a --resume auto'
        >>> command_to_go_on(["train", "mlr", "--kill", "servers:2@9,server-1@20"], "a", [Kill.parse("server-1@20")])
        'scarml train mlr --kill server-1@20 --run a --resume auto'
    """
    kept: list[str] = []
    rest = iter(args)
    for arg in rest:
        name, equals, value = arg.partition("=")
        if name in ("--run", "--resume") or (name == "--kill" and kills is not None):
            value = value if equals else next(rest, "")
            left = [k for k in value.split(",") if name == "--kill" and Kill.parse(k.strip()) in (kills or ())]
            kept += ["--kill", ",".join(left)] if left else []
        else:
            kept.append(arg)
    return shlex.join(["scarml", *kept, "--run", str(folder), "--resume", "auto"])
