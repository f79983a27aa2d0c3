"""One seed for a session on the card: RUNGEMM_SEED, or new each time; printed in the header and in every failure."""

from __future__ import annotations

import os

SEED = int(os.environ.get("RUNGEMM_SEED", int.from_bytes(os.urandom(4), "little")))
