"""The binding of cuBLASLt against a stand-in that multiplies as the library's documentation says, by columns."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rungemm.bench.contenders import contender_named  # noqa: E402
from rungemm.bench.cublaslt import BestOfLt, CublasLt, LtError  # noqa: E402
from rungemm.bench.data import make_sets, outputs_for  # noqa: E402
from rungemm.bench.device import HostDevice  # noqa: E402
from rungemm.bench.interleaved import StopRule  # noqa: E402
from rungemm.bench.measurement import Settings, measure  # noqa: E402
from rungemm.dtypes import BF16  # noqa: E402
from rungemm.hardware import ZOO  # noqa: E402
from rungemm.inputs import InputError  # noqa: E402
from rungemm.problem import Problem  # noqa: E402

QUICK = Settings(rule=StopRule(3, 4, 1.0), warm_up_s=0.02, host_time=False)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in for libcublasLt")
    made = tmp_path_factory.mktemp("lt") / "libfake_cublaslt.so"
    source = Path(__file__).parent / "fake_cublaslt.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    return made


def fastest_is(fastest: int, library: Path) -> Any:
    """A choice to whom the proposal that runs as that one of the stand-in's is the fastest."""
    runs = (ctypes.c_int * 8).in_dll(ctypes.CDLL(str(library)), "runs")

    def choose(ways: Any, problem: Problem) -> list[float]:
        operands = {**make_sets(problem, 1, device="cpu")[0], "D": outputs_for(problem, 1, "cpu")[0]}
        found = []
        for way in ways:
            before = list(runs)
            try:
                way(operands)()
            except LtError:
                found.append(float("inf"))
                continue
            (place,) = [index for index in range(8) if runs[index] != before[index]]
            found.append(1e-3 if place == fastest else 2e-3 + 1e-4 * place)
        return found

    return choose


PROBLEMS = [
    Problem.dense(20, 24, 16),
    Problem.dense(20, 24, 16, layout="NT", alpha=1.5),
    Problem.dense(7, 5, 9, layout="TN", alpha=-0.5, beta=2.0),
    Problem.dense(7, 5, 9, layout="TT", beta=1.0),
    Problem.dense(1, 33, 17, layout="NT"),
    Problem.dense(33, 1, 17),
    Problem.dense(1, 1, 1, layout="TT"),
    Problem.dense(6, 10, 8, batch=3, layout="NT"),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("fastest", [0, 3, 4])
def test_every_layout_is_right_and_the_fastest_proposal_is_taken(problem: Problem, fastest: int, library: Path) -> None:
    lt = BestOfLt(library=CublasLt([str(library)]), choose=fastest_is(fastest, library))
    result = measure(problem, [lt], ZOO["h200"], reference=None, settings=QUICK, device=HostDevice(1 << 10))
    lane = result.lanes["cublaslt"]
    assert lane.failure is None and lane.checked is not None and lane.checked.ok
    # Of four favourites the second cannot be used and the third refuses when run; algorithm 7 has nothing new, 9 one
    # more, 11 nothing. The workspace is the one that goes with the proposal.
    proposal, asked = {0: (1, "favourites"), 3: (3, "favourites"), 4: (4, "algorithm 9")}[fastest]
    config = {"proposal": proposal, "of": 4, "asked": asked, "workspace": 100 * fastest}
    assert lane.record == {"config": config}


def test_tf32_and_alignments_reach_the_library(library: Path) -> None:
    lt = BestOfLt(library=CublasLt([str(library)]), choose=fastest_is(0, library))
    problem = Problem.dense(8, 12, 16, precision="tf32")
    space = torch.zeros(4096)
    views = {"A": space[64:192].view(8, 16), "B": space[513:705].view(16, 12), "D": space[1024:1120].view(8, 12)}
    offset = space.data_ptr() % 256
    lt.bind(problem, views)()
    loaded = ctypes.CDLL(str(library))
    assert ctypes.c_int.in_dll(loaded, "last_compute").value == 77
    alignments = list((ctypes.c_int * 4).in_dll(loaded, "last_alignment"))
    if offset == 0:
        assert alignments == [4, 256, 256, 256]  # in its order: its A is our B
    assert alignments[0] == 4


def test_what_it_does_not_take_is_said(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lt = BestOfLt(library=CublasLt([str(library)]), choose=fastest_is(0, library))
    empty: dict[str, Any] = {role: torch.zeros(1) for role in "ABD"}
    with pytest.raises(InputError, match="tf32x3"):
        lt.bind(Problem.dense(8, 8, 8, precision="tf32x3"), empty)
    with pytest.raises(LtError, match="libnowhere"):
        CublasLt(["libnowhere.so"])
    monkeypatch.setattr("rungemm.bench.cublaslt.CublasLt", lambda: CublasLt(["libnowhere.so"]))
    with pytest.raises(InputError, match="cuBLASLt cannot be loaded"):
        found = contender_named("cublaslt", ZOO["h200"])
        assert isinstance(found, BestOfLt)
        found.bind(Problem.dense(8, 8, 8, dtype=BF16), empty)
