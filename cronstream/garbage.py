"""How often a process that handles much looks for garbage that refers to itself.

Next to nothing here does, and counting references frees the rest at once. Left alone, Python walks through
its young objects after every 700 new ones, which is each of the records that are being worked on, again and again: 40 %
of what settling an outcome costs.
"""

from __future__ import annotations

import gc
from typing import Final

OBJECTS: Final = 50_000
"""New ones between two looks at the young: some megabytes of garbage at most."""
_YOUNG_LOOKS: Final = 20
"""Between two looks at those that survived one. The old are looked at when they have grown by a quarter, as ever."""


def look_rarely() -> None:
    """From here on; what there is now stays for good, and is never walked through again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS, _YOUNG_LOOKS, 10)
