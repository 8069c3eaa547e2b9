"""What users check their own models with, and problems small enough for tests."""

from scarml.testing.model_contract import check_model
from scarml.testing.tiny_problems import TINY_PROBLEMS, tiny_problem

__all__ = ["TINY_PROBLEMS", "check_model", "tiny_problem"]
