"""``python -m scarml.cli`` is the command ``scarml``."""

from scarml.cli.main import main

main()
