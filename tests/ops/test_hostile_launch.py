"""The hostile tests over the stand-in card: with our kernels wherever one takes the problem, with cuBLAS, and with
cuBLAS chosen but ours launched because it is quicker to call."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from test_audit_launch import way  # noqa: F401
from test_ops_hostile import *  # noqa: F403
from test_ops_launch import card  # noqa: F401
