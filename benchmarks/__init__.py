"""Measured claims: ``python -m benchmarks`` runs them by name; docs/performance.md tells what they found."""
