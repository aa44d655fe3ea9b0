"""Numbers of JSON at the edges of what Postgres' numeric holds."""

from __future__ import annotations

NUMBERS = {
    "1e100000": True,
    "-1e131071": True,
    "1e131072": False,
    "0.1E131072": True,
    "9" * 5000: True,
    "-" + "9" * 131_072: True,
    "9" * 131_073: False,
    "1e-16383": True,
    "1e-16384": False,
    "0e-16384": False,
    "0e999999": True,
    "0e1073741823": False,
    "0.000e131075": True,
    "1." + "0" * 16_384: False,
    "1e+" + "0" * 5000 + "5": True,
    "1e" + "9" * 5000: False,
}
"""As Postgres holds them, or not; tests/integration/test_command_schema.py asks it."""
