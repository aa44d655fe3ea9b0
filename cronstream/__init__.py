"""The ground floor: pure, shared by every process; knows no server."""

__version__ = "0.1.0"
