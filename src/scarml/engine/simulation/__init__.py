"""A simulated cluster: virtual time, a simulated disk, seeded faults, and a witness of the invariants."""

from scarml.engine.simulation.life import Life, live
from scarml.engine.simulation.witness import InvariantError

__all__ = ["InvariantError", "Life", "live"]
