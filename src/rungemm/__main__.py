"""``python -m rungemm``."""

import sys

from .cli import main

sys.exit(main())
