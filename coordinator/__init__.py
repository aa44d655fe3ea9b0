"""Decides when: election, timing wheel, change feed, load and advance, dispatch."""
