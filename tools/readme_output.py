"""Paste a real run of ``rungemm ladder`` into the README: its title, one rung's paragraph, and the closing table.

    python tools/readme_output.py

Run it when the rungs or the output change. What is left out is marked [...]; nothing else is touched.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
SHOWN = "shared_tile"
ARGUMENTS = ("ladder", "--simulate", "--gpu", "h200", "--seed", "1")


def excerpt(printed: str) -> str:
    """The title, the paragraph of SHOWN, and everything from the table on."""
    lines = printed.rstrip().splitlines()
    first = next(i for i, line in enumerate(lines) if re.match(rf"\s*\d+ {SHOWN}\b", line))
    last = next(i for i in range(first + 1, len(lines)) if re.match(r"\s*\d+ \w", lines[i]) or not lines[i])
    table = max(i for i, line in enumerate(lines) if line.startswith("rung "))
    while lines[table - 1].strip():
        table -= 1
    title = next(i for i, line in enumerate(lines) if not line.strip())
    return "\n".join(line.rstrip() for line in [*lines[:title], "[...]", *lines[first:last], "[...]", *lines[table:]])


def main() -> int:
    # It has no options; an argument that it does not know must not end in a changed README.
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    ran = subprocess.run(
        [sys.executable, "-m", "rungemm", *ARGUMENTS],
        capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "80"},
    )  # fmt: skip
    if ran.returncode:
        print(ran.stdout[-2000:] + ran.stderr, file=sys.stderr)
        return ran.returncode
    text = README.read_text(encoding="utf-8")
    block = f"<!-- output: ladder -->\n```text\n$ rungemm ladder --seed 1\n{excerpt(ran.stdout)}\n```"
    changed, count = re.subn(r"<!-- output: ladder -->\n```text\n.*?```", lambda _: block, text, flags=re.DOTALL)
    if count != 1:
        print(f"README.md has {count} places for the output; one is needed", file=sys.stderr)
        return 1
    README.write_text(changed, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
