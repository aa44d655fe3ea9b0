"""Does it: consumes attempts, runs handlers, reports outcomes."""
