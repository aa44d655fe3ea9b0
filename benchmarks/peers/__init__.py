"""Other schedulers on the same Postgres, each in an environment of its own under .local/bench."""
