"""Where the nodes of a run are, in words."""

from __future__ import annotations

import os

from scarml.cli.settings import Settings
from scarml.cli.wording import counted

__all__ = ["nodes_in_words"]


def nodes_in_words(settings: Settings) -> str | None:
    """How many there are, and where; None where all are in this process, which need not be said.

    Example:
        >>> nodes_in_words(Settings(model="mlr", engine="ray", ray_address="10.0.0.1:6379", replace=True))
        '4 servers and 2 workers on the Ray at 10.0.0.1:6379, each a process with one compute thread; a lost one is replaced'
        >>> nodes_in_words(Settings(model="mlr"))
    """  # noqa: E501 - the answer is one line
    if settings.engine != "ray":
        return None
    address = settings.ray_address or os.environ.get("RAY_ADDRESS")
    where = f"the Ray at {address}" if address and address != "local" else "a Ray of their own on this machine"
    then = "a lost one is replaced" if settings.replace else "the others take over from a lost one"
    return (
        f"{counted(settings.servers, 'server')} and {counted(settings.workers, 'worker')} on {where}, "
        f"each a process with one compute thread; {then}"
    )
