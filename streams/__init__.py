"""Says what flows: admission, settlement, their tables and status pages, the history sink.

Decisions are pure (``admission``, ``settlement``, ``history``); a ``Lane`` carries
them out, one record of a partition at a time; Faust brings records and tables.
"""
