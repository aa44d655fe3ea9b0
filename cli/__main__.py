"""``python -m cli``: the same as ``cronstream``."""

from cli.main import main

if __name__ == "__main__":
    main()
