"""The laboratory: failures replayed along recorded trajectories, and what they cost. One file a table or figure."""

from scarml.experiments.failure import FailurePlan
from scarml.experiments.problem import Panel
from scarml.experiments.processes import Processes
from scarml.experiments.results import TrialRow
from scarml.experiments.strategy import FLOOR, GENERAL, Strategy, full, partial, repair
from scarml.experiments.summary import CellSummary, summarise
from scarml.experiments.sweep import Cell, Sweep

__all__ = [
    "FLOOR",
    "GENERAL",
    "Cell",
    "CellSummary",
    "FailurePlan",
    "Panel",
    "Processes",
    "Strategy",
    "Sweep",
    "TrialRow",
    "full",
    "partial",
    "repair",
    "summarise",
]
