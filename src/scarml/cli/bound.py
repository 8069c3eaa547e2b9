"""``scarml bound``: what would a loss cost?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from scarml.storage.json_text import to_json_text

if TYPE_CHECKING:
    from scarml.cli.bound_answer import Answer

__all__ = ["bound"]

SCHEMA_VERSION = 1
_NUMBERS, _SAVED, _PUSHES = "Instead of a run", "Saved values", "Perturbations of a known size"


def bound(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Folder or URL of a run to take them from.")
    ] = None,
    lost_fraction: Annotated[
        str | None,
        typer.Option(metavar="P", help="Part of the blocks that is lost: 30%, 0.3 or 3/10 (default: several)."),
    ] = None,
    c: Annotated[
        float | None,
        typer.Option(
            "--c", metavar="C", help="Rate of linear convergence; of a run: estimated.", rich_help_panel=_NUMBERS
        ),
    ] = None,
    age: Annotated[
        float | None,
        typer.Option(metavar="ITERS", help="How old saved values are; of a run: counted.", rich_help_panel=_SAVED),
    ] = None,
    direction: Annotated[
        Literal["straight", "any"],
        typer.Option(help="Training goes straight to the optimum, or to and fro.", rich_help_panel=_SAVED),
    ] = "straight",
    delta: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NORM[@K]", help="A perturbation, and of which x(K) (default: now).", rich_help_panel=_PUSHES
        ),
    ] = None,
    distance: Annotated[
        float | None,
        typer.Option(metavar="D", help="From the optimum, where --delta has no @K.", rich_help_panel=_PUSHES),
    ] = None,
    x0_distance: Annotated[
        float | None,
        typer.Option(metavar="D", help="Of x(0) from the optimum, for --delta NORM@K.", rich_help_panel=_PUSHES),
    ] = None,
    every_iteration: Annotated[
        float | None,
        typer.Option(metavar="NORM", help="A perturbation in every iteration.", rich_help_panel=_PUSHES),
    ] = None,
    eps: Annotated[
        float | None,
        typer.Option(metavar="D", help="With --every-iteration: the distance to reach.", rich_help_panel=_PUSHES),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Bound how many iterations a loss costs: what would losing 30 % now cost?

    Examples: scarml bound runs/mlr --lost-fraction 30%

    scarml bound --c 0.95 --age 8 --lost-fraction 30%

    scarml bound --c 0.95 --x0-distance 10 --delta 1.2@50 --delta 0.4@80

    scarml bound --c 0.95 --x0-distance 10 --every-iteration 0.01 --eps 0.5

    Every iteration of a linearly convergent algorithm brings it nearer to the optimum by the factor c. From a run, c is
    estimated from its losses, with an interval of 95 %, and it is said if they do not fall like that. How old saved
    values are is counted in its folder; it may be going on, and nothing is changed. Or give numbers.

    The bound is Theorem 3.2 of the paper; for saved values of a known age no distance to the optimum is needed.
    """
    from scarml.cli.bound_answer import Question, answer

    asked = Question(
        run=run,
        lost_fraction=lost_fraction,
        c=c,
        age_iters=age,
        direction=direction,
        deltas=tuple(delta or ()),
        distance=distance,
        x0_distance=x0_distance,
        every_iteration=every_iteration,
        eps=eps,
    )
    found = answer(asked)
    if as_json:
        print(to_json_text({"schema_version": SCHEMA_VERSION, "run": run, **found.to_json()}))
    else:
        _show(found)


def _show(found: Answer) -> None:
    for label, text in found.rows():
        print(f"{label:<11} {text}".rstrip())
