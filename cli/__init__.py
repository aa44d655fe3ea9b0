"""The ``cronstream`` command: sets an installation up, shows it, and edits definitions."""
