"""The command line: ``scarml``. One file a command; results go to stdout, everything else to stderr."""

from scarml.cli.main import app, main

__all__ = ["app", "main"]
