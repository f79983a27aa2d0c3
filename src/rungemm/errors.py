"""The base of every error that is the caller's to mend: one line that names the operand, the value and the remedy."""

from __future__ import annotations

__all__ = ["INSTALL_TORCH", "UserError"]

INSTALL_TORCH = "pip install 'rungemm[torch]' (in a clone: '.[torch]')"
"""What every message says that misses torch."""


class UserError(ValueError):
    """What was asked cannot be done as asked. The command line prints the text alone and exits with 2."""
