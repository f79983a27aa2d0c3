"""Tuning: prune a search space on paper, compile what is left, time it with losers dropped early, keep the winner."""

from .database import Tuned, TuningDatabase
from .space import Candidate, Pruned, Space, by_predicate, by_resources
from .tuner import Tuning, TuningError, tune

__all__ = [
    "Candidate",
    "Pruned",
    "Space",
    "Tuned",
    "Tuning",
    "TuningDatabase",
    "TuningError",
    "by_predicate",
    "by_resources",
    "tune",
]
