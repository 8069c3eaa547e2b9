"""Engines: servers, workers, and what makes them run, in one process or simulated."""
