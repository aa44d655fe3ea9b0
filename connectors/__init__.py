"""Captures edits: the Debezium connector as JSON, its registration and its watchdog."""
