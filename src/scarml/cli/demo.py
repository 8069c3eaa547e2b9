"""``scarml demo``: what SCAR is for, in half a minute. Trains, loses half of the servers, and is killed for real."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scarml.storage.json_text import to_json_text

if TYPE_CHECKING:
    from scarml.cli.demo_result import Played
    from scarml.cli.demo_show import Show

__all__ = ["demo"]

INTRODUCTION = """\
SCAR: training that goes on when machines die.

Multinomial logistic regression on the 10,000 MNIST images that come with SCAR, on a parameter server with 4 servers and
2 workers in this process. Its 784 rows of parameters are blocks, spread at random over the servers. Training is done
when the loss, summed over the images, is below {criterion:,}.

Two of the four servers are lost on x({at}), the state after {at} iterations. That is five eighths of the way from one
traditional checkpoint, x(16), to the next, x(24); a failure at a random moment costs full recovery 3.5 iterations.
Iterations of this small model are fast; where the disk is slower, the demo waits for it.
"""


def demo(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for runs and picture (default: scar-runs/demo-N)")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one JSON object on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
) -> int:
    """Train on packaged data, lose half of the servers (simulated), and kill the process (for real).

    Compares partial with full recovery; ends with a table and a picture. No data needs to be downloaded.
    """
    from scarml.cli.demo_killed_driver import play_kill
    from scarml.cli.demo_result import Folder, as_table, to_json
    from scarml.cli.demo_runs import AT_ITER, STORIES, criterion, play
    from scarml.cli.demo_show import Show
    from scarml.cli.exit_codes import DONE, NOT_CONVERGED
    from scarml.plots.demo import draw

    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    folder = Folder.make(out)
    show = Show(quiet)
    show.say(INTRODUCTION.format(criterion=criterion(), at=AT_ITER))
    played = [play(story, folder.path / story.name, show) for story in STORIES]
    played.append(play_kill(folder.path / "killed", show))
    pictures = draw(folder.write_table(played), criterion(), folder.path)
    if as_json:
        print(to_json_text({**to_json(played, criterion()), "pictures": [str(p) for p in pictures]}))
    else:
        print("\n".join(["", *as_table(played), ""]))
        print(f"picture: {pictures[0]}")
    _say_what_next(show, played)
    return DONE if all(p.converged for p in played) else NOT_CONVERGED


def _say_what_next(show: Show, played: list[Played]) -> None:
    if any(not p.converged for p in played):
        show.say("scarml: warning: not all runs have converged; their folders have the event logs")
    show.say("Next: scarml train mlr --data mnist-10k --kill servers:2@21")


def _exit_on_sigterm(number: int, _: Any) -> None:
    """By way of an exception, so that a child process is ended on the way out."""
    sys.exit(128 + number)
