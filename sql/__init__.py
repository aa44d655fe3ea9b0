"""Where truth is stored: migrations and named queries as .sql files, and the way to the server."""

from sql.connection import connect

__all__ = ["connect"]
