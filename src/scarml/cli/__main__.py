"""``python -m scarml.cli`` is the command ``scarml``."""

from scarml.cli.main import main

if __name__ == "__main__":
    main()
