"""The whole method on torch's CPU: everything but the CUDA clock and the capture is what runs on the card."""

from __future__ import annotations

import re
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rungemm.bench.cold import WarmCacheError  # noqa: E402
from rungemm.bench.contenders import Contender, TorchMatmul, UserCallable  # noqa: E402
from rungemm.bench.device import HostDevice  # noqa: E402
from rungemm.bench.guard import ImpossibleResultError  # noqa: E402
from rungemm.bench.interleaved import StopRule  # noqa: E402
from rungemm.bench.measurement import Settings, measure  # noqa: E402
from rungemm.bench.store import measurement_record  # noqa: E402
from rungemm.dtypes import BF16, FP16, INT8, INT32  # noqa: E402
from rungemm.hardware import ZOO  # noqa: E402
from rungemm.problem import Problem  # noqa: E402

from .fake import recording_device  # noqa: E402

H200 = ZOO["h200"]
QUICK = Settings(rule=StopRule(3, 5, 1.0), warm_up_s=0.05)


class Wrapped(Contender):
    """torch's product, then ``spoil(D)``; or an error."""

    def __init__(self, name: str, spoil: Any) -> None:
        self.name, self.spoil = name, spoil

    def bind(self, problem: Problem, operands: dict[str, Any]) -> Any:
        product = TorchMatmul().bind(problem, operands)

        def call() -> None:
            product()
            self.spoil(operands["D"])

        return call


def nan_in_a_corner(d: Any) -> None:
    d[-1, -1] = float("nan")


def one_element_off(d: Any) -> None:
    d[0, 0] += 1


PROBLEMS = [
    Problem.dense(48, 40, 32),
    Problem.dense(48, 40, 32, layout="TT", alpha=1.5, beta=-0.5),
    Problem.dense(33, 17, 65, dtype=BF16, layout="NT"),
    Problem.dense(33, 17, 65, dtype=FP16, layout="TN"),
    Problem.dense(16, 24, 8, batch=3),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_right_contenders_get_figures(problem: Problem) -> None:
    l2 = 1 << 12  # so few sets that a slow host comes round within the least number of rounds
    device = HostDevice(l2)
    result = measure(problem, [TorchMatmul(), TorchMatmul(name="again")], H200, settings=QUICK, device=device)
    assert result.cold["cold"] and result.cold["closest_reuse_bytes"] >= 2 * l2
    for lane in result.lanes.values():
        assert lane.failure is None and lane.checked is not None and lane.checked.ok and lane.tflops
        assert len(lane.seconds) == result.rounds.count
    ratio = result.ratio("cublas", "again")
    assert ratio is not None and 0.2 < ratio.value < 5
    record = measurement_record(result, "t")
    assert record["lanes"]["again"]["us"] and record["problem"]["layout"] == problem.layout


@pytest.mark.parametrize(
    "spoil", [nan_in_a_corner, one_element_off, lambda d: d.zero_(), lambda d: d.fill_(float("nan"))]
)
def test_a_wrong_contender_fails_and_the_others_go_on(spoil: Any) -> None:
    contenders = [TorchMatmul(), Wrapped("wrong", spoil)]
    result = measure(PROBLEMS[0], contenders, H200, settings=QUICK, device=HostDevice())
    wrong = result.lanes["wrong"]
    assert wrong.failure is not None and wrong.failure.startswith("wrong result") and wrong.tflops is None
    assert result.lanes["cublas"].failure is None and result.ratio("cublas", "wrong") is None


def test_a_contender_that_writes_nothing_fails_on_the_poison() -> None:
    class Lazy(Contender):
        name = "lazy"

        def bind(self, problem: Problem, operands: dict[str, Any]) -> Any:
            first = [True]

            def call() -> None:
                if first.pop() if first else False:  # right once, before anything is timed
                    TorchMatmul().bind(problem, operands)()

            return call

    result = measure(PROBLEMS[0], [TorchMatmul(), Lazy()], H200, settings=QUICK, device=HostDevice())
    assert "wrong result" in (result.lanes["lazy"].failure or "")


def test_a_contender_that_raises_is_a_failure_of_its_own() -> None:
    def explode(_: Any) -> None:
        raise RuntimeError("no such luck\nand more")

    result = measure(PROBLEMS[0], [TorchMatmul(), Wrapped("boom", explode)], H200, settings=QUICK, device=HostDevice())
    assert result.lanes["boom"].failure == "RuntimeError: no such luck" and result.lanes["cublas"].tflops


def test_warm_is_refused_or_labelled() -> None:
    with pytest.raises(WarmCacheError, match="--warm"):
        measure(PROBLEMS[0], [TorchMatmul()], H200, settings=Settings(rule=QUICK.rule, sets=1), device=HostDevice())
    warm = measure(
        PROBLEMS[0], [TorchMatmul()], H200, settings=Settings(rule=QUICK.rule, warm=True), device=HostDevice()
    )
    assert warm.cold["cold"] is False and warm.cold["sets"] == 1


def test_the_impossible_is_an_error() -> None:
    class Slow:
        """A clock that is a million times slow: everything seems a million times fast."""

        def __init__(self) -> None:
            self.inner = HostDevice().clock

        def lead_in(self) -> None:
            return None

        def mark(self) -> Any:
            return self.inner.mark()

        def synchronize(self) -> None:
            return None

        def seconds(self, start: Any, end: Any) -> float:
            return 1e-6 * self.inner.seconds(start, end)

    with pytest.raises(ImpossibleResultError, match="dense peak"):
        measure(Problem.dense(512, 512, 512), [TorchMatmul()], H200, settings=QUICK, device=HostDevice(clock=Slow()))


def test_int8_is_compared_exactly() -> None:
    problem = Problem.dense(32, 32, 64, dtype=INT8, out_dtype=INT32)
    bad = Wrapped("off by one", one_element_off)
    result = measure(problem, [TorchMatmul(), bad], H200, settings=QUICK, device=HostDevice())
    assert result.lanes["cublas"].checked is not None and result.lanes["cublas"].checked.error == 0
    assert result.lanes["off by one"].failure


def returns_product(a: Any, b: Any) -> Any:
    return a @ b


def writes_out(a: Any, b: Any, out: Any) -> None:
    torch.mm(a, b, out=out)


@pytest.mark.parametrize("function", ["returns_product", "writes_out"])
def test_users_own_function(function: str) -> None:
    mine = UserCallable(f"{__name__}:{function}", name="mine")
    result = measure(PROBLEMS[0], [TorchMatmul(), mine], H200, settings=QUICK, device=HostDevice())
    assert result.lanes["mine"].failure is None and result.lanes["mine"].tflops


@pytest.fixture
def all_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel counts as short, on however busy a host."""
    monkeypatch.setattr("rungemm.bench.measurement.SHORT_KERNEL_S", float("inf"))


@pytest.mark.usefixtures("all_short")
@pytest.mark.parametrize("function", ["returns_product", "writes_out"])
def test_what_a_replay_writes_is_what_is_checked(function: str) -> None:
    mine = UserCallable(f"{__name__}:{function}", name="mine")
    result = measure(PROBLEMS[0], [TorchMatmul(), mine], H200, settings=QUICK, device=recording_device())
    lane = result.lanes["mine"]
    assert lane.graph and lane.failure is None and lane.checked is not None and lane.checked.ok


KEPT: dict[int, Any] = {}


def returns_what_it_kept(a: Any, b: Any) -> Any:
    """Right each time, and computed only once a set: nothing of it is work."""
    if a.data_ptr() not in KEPT:
        KEPT[a.data_ptr()] = a @ b
    return KEPT[a.data_ptr()]


@pytest.mark.usefixtures("all_short")
@pytest.mark.parametrize("graphs", [True, False])
def test_a_contender_that_returns_an_old_result_fails_on_the_poison(graphs: bool) -> None:
    KEPT.clear()
    mine = UserCallable(f"{__name__}:returns_what_it_kept", name="mine")
    settings = Settings(rule=QUICK.rule, warm_up_s=QUICK.warm_up_s, graphs=graphs)
    result = measure(PROBLEMS[0], [TorchMatmul(), mine], H200, settings=settings, device=recording_device())
    assert "wrong result" in (result.lanes["mine"].failure or "") and result.lanes["cublas"].failure is None


def returns_a_number(a: Any, b: Any) -> Any:
    return float((a @ b).sum())


def returns_the_transpose(a: Any, b: Any) -> Any:
    return (a @ b).T


@pytest.mark.parametrize(
    ("function", "words"), [("returns_a_number", "float"), ("returns_the_transpose", r"\(40, 48\)")]
)
def test_a_function_that_returns_no_product_says_so(function: str, words: str) -> None:
    mine = UserCallable(f"{__name__}:{function}", name="mine")
    result = measure(PROBLEMS[0], [TorchMatmul(), mine], H200, settings=QUICK, device=HostDevice())
    assert re.search(words, result.lanes["mine"].failure or "")
    assert result.lanes["cublas"].tflops


def test_empty_problems_and_twins_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing to multiply"):
        measure(Problem.dense(0, 4, 4), [TorchMatmul()], H200, settings=QUICK, device=HostDevice())
    with pytest.raises(ValueError, match="one name"):
        measure(PROBLEMS[0], [TorchMatmul(), TorchMatmul()], H200, settings=QUICK, device=HostDevice())
