"""The command line: one file a command. Importing this loads neither numpy, nor triton, nor torch.

Exit codes of every command: 0 all is well, 1 the answer is bad (a rung is wrong), 2 what the user gave cannot be
used; then one line on stderr says what, and what to do.
"""

from .main import main

__all__ = ["main"]
