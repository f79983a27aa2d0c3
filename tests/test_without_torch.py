"""The package's names where torch cannot be imported: asking for one is fine, calling it says what to install."""

from __future__ import annotations

import subprocess
import sys


def test_names_are_there_and_calls_say_what_is_missing():
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import pydoc, rungemm\n"
        "from rungemm import *\n"
        "assert hasattr(rungemm, 'matmul') and 'torch.matmul' in rungemm.matmul.__doc__\n"
        "assert all(getattr(rungemm, name).__doc__ for name in rungemm.__all__)\n"
        "assert 'matmul' in pydoc.render_doc(rungemm)\n"
        "try: matmul(1, 2)\n"
        "except ImportError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("rungemm.matmul needs torch: pip install 'rungemm[torch]'"), ran.stdout
