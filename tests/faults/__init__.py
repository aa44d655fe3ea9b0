"""The fault runs: a workload, a nemesis, a recorded history, and a judge for each promise."""
