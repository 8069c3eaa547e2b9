"""The entry point: commands, and what becomes of errors."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from scarml.cli import (
    bound,
    data,
    demo,
    demo_servers,
    export,
    figure,
    inspect,
    live_commands,
    models,
    rollback,
    status,
    train,
    verify,
)
from scarml.cli.exit_codes import DONE, FAILED, USAGE, of_error
from scarml.errors import ProtocolError, ScarError

__all__ = ["app", "main"]

_USAGE_ERROR: type[Exception] = typer.BadParameter.__base__  # type: ignore[assignment]  # typer exports only this leaf

_REFUSED_NAMES = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ELOOP, errno.EROFS)
"""What a file system says of a path that it does not let us use: no bug, but for the user to change."""

app = typer.Typer(
    name="scarml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="SCAR keeps iterative machine learning going when machines die.",
)
app.command("train")(train.train)
app.command("demo")(demo.demo)
app.command("demo-kill")(demo_servers.demo_kill)
app.command("models")(models.list_models)
app.command("status")(status.status)
app.command("stop")(live_commands.stop)
app.command("drain")(live_commands.drain)
app.command("scale")(live_commands.scale)
app.command("inspect")(inspect.inspect)
app.command("bound")(bound.bound)
app.command("verify")(verify.verify)
app.command("export")(export.export)
app.command("rollback")(rollback.rollback)
app.command("figure")(figure.figure)
app.add_typer(data.app, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        from scarml import __version__

        print(f"scarml {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """SCAR keeps iterative machine learning going when machines die."""


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code."""
    args = list(sys.argv[1:] if args is None else args)
    _open_streams()
    code = _run(args)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads any more; the interpreter must not complain about it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _open_streams() -> None:
    """Let output neither be missing (``>&-``) nor fail for a character that its encoding does not have."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # until the process ends
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(args: list[str]) -> int:
    try:
        with _warnings_on_stderr():
            code: Any = app(args, prog_name="scarml", standalone_mode=False)
    except BrokenPipeError:
        return FAILED
    except OSError as e:
        if e.filename is not None and e.errno in _REFUSED_NAMES:
            _complain(f"{e.filename} cannot be used: {e.strerror}")
            return USAGE
        if e.filename is not None or e.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT):
            return _explain(e, full="-vv" in args)
        _complain(f"the output cannot be written: {e.strerror}")
        return FAILED
    except KeyboardInterrupt as e:
        _complain("interrupted")
        return of_error(e)
    except Exception as e:  # noqa: BLE001  # every error becomes a sentence and an exit code
        return _explain(e, full="-vv" in args)
    return code if isinstance(code, int) else DONE


def _explain(error: Exception, full: bool) -> int:
    if isinstance(error, _USAGE_ERROR):
        message = getattr(error, "format_message", error.__str__)()
        if message:  # empty: help was shown instead
            _complain(f"{message.rstrip('.')}; see scarml --help")
        return USAGE
    if full:
        traceback.print_exception(error)
    if isinstance(error, ScarError) and not isinstance(error, ProtocolError):
        _complain(str(error))
        return of_error(error)
    if not full:
        traceback.print_exception(error, limit=-4)
    _complain(f"{type(error).__name__}: {error}\nThis is a bug in SCAR; please report it with the lines above.")
    return FAILED


def _complain(text: str) -> None:
    with suppress(OSError):
        print(f"scarml: error: {text}", file=sys.stderr)


class _warnings_on_stderr(logging.Handler):  # noqa: N801  # used as a context, like those of contextlib
    """While it lasts, what modules log goes to whatever stderr is at that moment."""

    def __enter__(self) -> None:
        logging.getLogger("scarml").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("scarml").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        with suppress(OSError):
            print(f"scarml: {record.levelname.lower()}: {record.getMessage()}", file=sys.stderr)
