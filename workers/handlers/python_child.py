"""The child of one ``python`` run: imports the module and calls the function.

Run as ``python -I python_child.py MODULE FUNCTION``; standard input holds JSON:
``{"path": [folders], "call": {…}}``. Knows nothing of the worker's own modules.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def main(module: str, function: str) -> None:
    """Call it. Whatever it raises ends the interpreter as Python always does: a traceback and exit code 1."""
    given = json.loads(sys.stdin.buffer.read())
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    # The first entry is this file's own folder: its modules are not the job's.
    sys.path[:1] = given["path"]
    getattr(importlib.import_module(module), function)(given["call"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
