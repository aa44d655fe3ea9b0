"""The ground floor: pure, shared by every process; knows no server."""
