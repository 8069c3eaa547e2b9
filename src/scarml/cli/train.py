"""``scarml train``: one run on a parameter server."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

__all__ = ["train"]

_NODES, _SAVES, _FAILURES, _END, _OUTPUT = "Nodes", "Checkpoint and recovery", "Failures on purpose", "End", "Output"
_HELD_OUT = "Metrics on held-out data, and early stopping"


def train(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="mlr, mf, lda, cnn, qp, or module:Class for a model of your own."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME|PATH", help="Data set, or a file; see: scarml data list. Or module:function."),
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="DIR", help="Run folder (default: a new one, scar-runs/MODEL-DATA-N)")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="auto|must|never", help="Start or continue; continue; only start (default: never)"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A hyper-parameter of the model; repeatable."),
    ] = None,
    seed: Annotated[str | None, typer.Option(metavar="N", help="Of all random values (default: 0)")] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Settings from a TOML file, or from the run.json of an earlier run."),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the effective settings as TOML, and stop.")
    ] = False,
    servers: Annotated[
        str | None,
        typer.Option(metavar="N", help="Nodes that hold the parameters (default: 4)", rich_help_panel=_NODES),
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="N", help="Nodes that compute (default: 2)", rich_help_panel=_NODES)
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Pieces of the data; results depend on it, not on the nodes (default: 16)",
            rich_help_panel=_NODES,
        ),
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="That compute shards (default: 2); with --engine ray every process has one",
            rich_help_panel=_NODES,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="inprocess|ray",
            help="Where nodes are: all in this process, or each in a process of its own, on one machine or many "
            "(default: inprocess)",
            rich_help_panel=_NODES,
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR",
            help="With --engine ray: a Ray to join (default: RAY_ADDRESS, else one is started here for this run)",
            rich_help_panel=_NODES,
        ),
    ] = None,
    replace: Annotated[
        bool | None,
        typer.Option(
            "--replace/--no-replace",
            help="Start a new node for one that is lost; else the others share its work for good (default: no)",
            rich_help_panel=_NODES,
            show_default=False,
        ),
    ] = None,
    silence: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help="With --engine ray: a node that is silent for so long is lost; a process that dies is noticed at "
            "once (default: 10)",
            rich_help_panel=_NODES,
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="priority|round|random|mfu|ssu|full|module:Class",
            help="Which blocks to save (default: priority)",
            rich_help_panel=_SAVES,
        ),
    ] = None,
    fraction: Annotated[
        str | None,
        typer.Option(
            metavar="R", help="Part of the state that one save writes (default: 1/8; full: 1)", rich_help_panel=_SAVES
        ),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(
            metavar="C",
            help="Iterations in which the whole state's worth is saved (default: 8)",
            rich_help_panel=_SAVES,
        ),
    ] = None,
    recovery: Annotated[
        str | None,
        typer.Option(
            metavar="partial|repair|full",
            help="Restore what was lost; the same, and let the model mend it; or take everything back, which needs "
            "policy full (default: partial)",
            rich_help_panel=_SAVES,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="paper|general",
            help="Where the next four options begin: as in the paper; or bytes, weighted-distance-per-byte, narrow and "
            "phase-aware, which costs less after a loss, but rounds what is restored (default: paper)",
            rich_help_panel=_SAVES,
        ),
    ] = None,
    budget_in: Annotated[
        str | None,
        typer.Option(
            metavar="blocks|bytes", help="What the fraction counts (default: the preset's)", rich_help_panel=_SAVES
        ),
    ] = None,
    rank_by: Annotated[
        str | None,
        typer.Option(
            metavar="distance|distance-per-byte|weighted-distance-per-byte",
            help="What priority ranks by (default: the preset's)",
            rich_help_panel=_SAVES,
        ),
    ] = None,
    encode: Annotated[
        str | None,
        typer.Option(
            metavar="plain|float32|bfloat16|int8|mxint8|narrow",
            help="A narrower form to save values in; narrow: the narrowest for each field (default: the preset's)",
            rich_help_panel=_SAVES,
        ),
    ] = None,
    phase_aware: Annotated[
        bool | None,
        typer.Option(
            "--phase-aware/--no-phase-aware",
            help="Save least of what the next phase overwrites (default: the preset's)",
            rich_help_panel=_SAVES,
        ),
    ] = None,
    kill: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            help="Lose nodes: servers:2@20 (two, on x(20)), workers:1/2@20, server-3@20; repeatable. In one process "
            "this is simulated; with --engine ray their processes get SIGKILL.",
            rich_help_panel=_FAILURES,
        ),
    ] = None,
    fail_rate: Annotated[
        str | None,
        typer.Option(
            metavar="P",
            help="Lose a random server with this probability an iteration (default: 0)",
            rich_help_panel=_FAILURES,
        ),
    ] = None,
    stop_loss_sum: Annotated[
        str | None,
        typer.Option(metavar="X", help="Converged below this summed loss (default: the model's)", rich_help_panel=_END),
    ] = None,
    stop_loss_mean: Annotated[
        str | None, typer.Option(metavar="X", help="The same, per example.", rich_help_panel=_END)
    ] = None,
    max_iters: Annotated[
        str | None, typer.Option(metavar="N", help="Stop at x(N) at the latest.", rich_help_panel=_END)
    ] = None,
    eval_every: Annotated[
        str | None,
        typer.Option(metavar="N", help="Iterations between evaluations of the loss (default: 1)", rich_help_panel=_END),
    ] = None,
    held_out: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|NAME|PATH",
            help="What not to train on: a share of the data, such as 0.1; or other data; or test, the data set's test "
            "part (default: test, where metrics are wanted)",
            rich_help_panel=_HELD_OUT,
        ),
    ] = None,
    metrics_every: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Iterations between evaluations of the model's metrics on it (default: 1 with --held-out or "
            "--patience; else never)",
            rich_help_panel=_HELD_OUT,
        ),
    ] = None,
    patience: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Stop when a metric was no better in N evaluations; takes the place of the model's own criterion.",
            rich_help_panel=_HELD_OUT,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which one (default: the model's first)", rich_help_panel=_HELD_OUT),
    ] = None,
    min_delta: Annotated[
        str | None,
        typer.Option(
            metavar="X", help="A value is better only if it is by more than X (default: 0)", rich_help_panel=_HELD_OUT
        ),
    ] = None,
    pace: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS", help="Wait so long in every iteration, for demonstrations.", rich_help_panel=_OUTPUT
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on stdout.", rich_help_panel=_OUTPUT)
    ] = False,
    log_format: Annotated[
        str,
        typer.Option(
            metavar="text|json",
            help="json: every event as one JSON object a line on stderr (default: text)",
            rich_help_panel=_OUTPUT,
            show_default=False,
        ),
    ] = "text",
    verbose: Annotated[
        int,
        typer.Option(
            "-v",
            "--verbose",
            count=True,
            help="Show every event; -vv: also tracebacks.",
            show_default=False,
            rich_help_panel=_OUTPUT,
        ),
    ] = 0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.", rich_help_panel=_OUTPUT)] = False,
) -> int:
    """Train a model on a parameter server, and go on when nodes are lost.

    Examples: scarml train mlr --data mnist-10k --kill servers:2@20

    scarml train mlr --data mnist-10k --engine ray --replace --kill servers:2@20

    Each setting may also come from SCAR_<NAME> in the environment (SCAR_SERVERS=8) or from a config file (servers = 8);
    a flag counts before the environment, that before the file. Ctrl-C and SIGTERM end a run with everything saved; the
    same command with --resume auto goes on.
    """
    flags: dict[str, Any] = {**locals(), "set": set_}
    from scarml.cli.config_file import to_toml
    from scarml.cli.settings import from_everywhere
    from scarml.errors import UsageError

    settings = from_everywhere(flags, config)
    if log_format not in ("text", "json"):
        raise UsageError(f"--log-format {log_format!r} is unknown; choose text or json")
    from scarml.cli.train_run import Output, checkpoint_of, run_settings

    sys.path.insert(0, "")  # a model or policy of the user's own may lie in the current folder
    if print_config:
        checkpoint_of(settings)
        print(to_toml(settings.to_config()))
        return 0
    return run_settings(settings, Output(as_json, log_format, -1 if quiet else verbose))
