"""Print one of the README's commands: the fenced shell block under ``<!-- command: NAME -->``.

CI runs what this prints, so the README cannot promise a command that fails.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def command(name: str, text: str) -> str:
    """The block's text.

    Raises:
        LookupError: the README marks no such command, or more than one.
    """
    found = re.findall(rf"<!-- command: {re.escape(name)} -->\s*```(?:sh|bash)\n(.*?)```", text, re.DOTALL)
    if len(found) != 1:
        raise LookupError(f"README.md marks {len(found)} commands named {name}; exactly one is needed")
    return found[0].strip()


if __name__ == "__main__":
    print(command(sys.argv[1], README.read_text(encoding="utf-8")))
