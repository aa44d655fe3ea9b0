"""Where truth is stored: migrations and named queries as .sql files, and the way to the server."""

from sql.connection import OtherInstallation, claim, connect

__all__ = ["OtherInstallation", "claim", "connect"]
