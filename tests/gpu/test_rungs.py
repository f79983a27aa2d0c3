"""Every rung on the card: right in every case, inputs untouched, on the current stream, the same bits each time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from cases import CASES, OTHER_TYPES, Case, Operands, operands_of  # noqa: E402
from seeding import SEED  # noqa: E402

from rungemm.bench.checking import check_outputs  # noqa: E402
from rungemm.compiling import CompileError, compile_many  # noqa: E402
from rungemm.dtypes import FP32, DType  # noqa: E402
from rungemm.gpu import prepare, run_plan  # noqa: E402
from rungemm.hardware import Gpu  # noqa: E402
from rungemm.kernels import LADDER, Kernel, LaunchPlan, Unsupported  # noqa: E402
from rungemm.problem import PRECISIONS, Problem  # noqa: E402


def kinds_of(kernel: Kernel[Any], card: Gpu) -> list[tuple[DType, str]]:
    """The element types and precisions that a rung takes, at a size that suits everyone; its first comes first."""
    found = []
    for dtype in kernel.dtypes:
        # Only fp32 operands can be multiplied in several ways.
        for precision in PRECISIONS if dtype == FP32 else ("ieee",):
            problem = Problem.dense(512, 512, 512, dtype=dtype, precision=precision)  # type: ignore[arg-type]
            try:
                kernel.default_config(problem, card)
            except Unsupported:
                continue
            found.append((dtype, precision))
    return found


class Bench:
    """Operands, plans and machine code of every test here, made once: shared by rungs, compiled in parallel."""

    def __init__(self, card: Gpu) -> None:
        self.card = card
        self.generator = torch.Generator("cuda").manual_seed(SEED)
        self.operands: dict[tuple[Case, DType, str], Operands] = {}
        self.plans: dict[tuple[str, Case, DType, str], LaunchPlan | str] = {}
        for kernel in LADDER:
            for number, (dtype, precision) in enumerate(kinds_of(kernel, card)):
                for case in CASES if number == 0 else OTHER_TYPES:
                    self._plan(kernel, case, dtype, precision)
        jobs = [(plan, card.arch) for plan in self.plans.values() if isinstance(plan, LaunchPlan)]
        self.failures = [str(r) for r in compile_many(jobs) if isinstance(r, CompileError)]

    def of(self, case: Case, dtype: DType, precision: str) -> Operands:
        key = (case, dtype, precision)
        if key not in self.operands:
            self.operands[key] = operands_of(case, dtype, precision, dtype, self.generator)
        return self.operands[key]

    def _plan(self, kernel: Kernel[Any], case: Case, dtype: DType, precision: str) -> None:
        problem = self.of(case, dtype, precision).problem
        try:
            plan: LaunchPlan | str = kernel.plan(problem, kernel.default_config(problem, self.card), self.card)
        except Unsupported as reason:
            plan = str(reason)
        self.plans[kernel.name, case, dtype, precision] = plan

    def plan(self, kernel: Kernel[Any], case: Case, dtype: DType, precision: str) -> LaunchPlan:
        plan = self.plans[kernel.name, case, dtype, precision]
        if isinstance(plan, str):
            # The CUDA-core rungs take everything; those after may leave a problem to the kernels built for it.
            assert kernel.family != "cuda_core" and case != CASES[0], plan
            pytest.skip(plan)
        return plan


@pytest.fixture(scope="module")
def bench(card: Gpu) -> Bench:
    return Bench(card)


def first_kind(kernel: Kernel[Any], card: Gpu) -> tuple[DType, str]:
    kinds = kinds_of(kernel, card)
    if not kinds:
        assert kernel.family != "cuda_core", f"{kernel.name} takes no problem on {card.title}"
        pytest.skip(f"{kernel.name} is not for {card.title}")
    return kinds[0]


def assert_right(operands: Operands) -> None:
    checked = check_outputs(operands.problem, [operands.by_role], {"ours": [operands.d]})["ours"]
    assert checked.ok, f"{checked.why}; RUNGEMM_SEED={SEED}"


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()])


def run_and_check(plan: LaunchPlan, shared: Operands) -> Operands:
    """Run on a fresh D: the result is right, the inputs are bit for bit what they were, and nothing else is written."""
    operands = shared.fresh()
    before = {name: bits(x).clone() for name, x in (("A", operands.a), ("B", operands.b), ("C", operands.c))}
    run_plan(plan, operands.by_role)
    torch.cuda.synchronize()
    if operands.d.numel():
        assert_right(operands)
    for name, x in (("A", operands.a), ("B", operands.b), ("C", operands.c)):
        assert torch.equal(bits(x), before[name]), f"{name} was written"
    if operands.d_base is not operands.d:
        written = torch.zeros_like(operands.d_base, dtype=torch.bool)
        written.as_strided(operands.d.shape, operands.d.stride(), operands.d.storage_offset()).fill_(True)
        assert operands.d_base[~written].isnan().all(), "elements between D's were written"
    return operands


def test_everything_compiles(bench: Bench) -> None:
    assert not bench.failures, "\n".join(bench.failures)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("kernel", LADDER, ids=lambda k: k.name)
def test_case(kernel: Kernel[Any], case: Case, bench: Bench) -> None:
    dtype, precision = first_kind(kernel, bench.card)
    run_and_check(bench.plan(kernel, case, dtype, precision), bench.of(case, dtype, precision))


@pytest.mark.parametrize("kernel", LADDER, ids=lambda k: k.name)
def test_other_types(kernel: Kernel[Any], bench: Bench) -> None:
    kinds = kinds_of(kernel, bench.card)[1:]
    if not kinds:
        pytest.skip("one element type only")
    for dtype, precision in kinds:
        for case in OTHER_TYPES:
            plan = bench.plans[kernel.name, case, dtype, precision]
            if isinstance(plan, LaunchPlan):
                run_and_check(plan, bench.of(case, dtype, precision))


@pytest.mark.parametrize("kernel", LADDER, ids=lambda k: k.name)
def test_nan_and_inf_go_where_they_must(kernel: Kernel[Any], bench: Bench) -> None:
    case = CASES[2]
    dtype, precision = first_kind(kernel, bench.card)
    plan = bench.plan(kernel, case, dtype, precision)
    operands = bench.of(case, dtype, precision).fresh()
    operands.a, operands.b = operands.a.clone(), operands.b.clone()
    operands.a[3, 5] = float("nan")
    operands.a[700, 1000] = float("inf")  # the last k: a K mask that lets in a neighbour would spread it
    operands.b[1000, 998] = float("-inf")
    operands.b[0, 0] = float("inf")
    run_plan(plan, operands.by_role)
    got = operands.d
    assert got[3].isnan().all(), "a NaN in a row of A makes the row of D NaN"
    expected = operands.a.double() @ operands.b.double() * case.alpha + case.beta * operands.c.double()
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.isinf(), expected.isinf())
    assert torch.equal(got[expected.isinf()] > 0, expected[expected.isinf()] > 0)
    assert int(got.isfinite().sum()) > 900 * 900


@pytest.mark.parametrize("kernel", LADDER, ids=lambda k: k.name)
def test_same_bits_each_time_and_on_the_current_stream(kernel: Kernel[Any], bench: Bench) -> None:
    case = CASES[2]
    dtype, precision = first_kind(kernel, bench.card)
    plan = bench.plan(kernel, case, dtype, precision)
    first = run_and_check(plan, bench.of(case, dtype, precision))
    again = first.fresh()
    late_a = torch.full_like(again.a, 7.0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        # A gets its values only after a pause on the side stream: a launch on any other stream reads sevens.
        torch.cuda._sleep(20_000_000)
        late_a.copy_(again.a)
        run_plan(plan, {**again.by_role, "A": late_a})
    side.synchronize()
    assert torch.equal(bits(first.d), bits(again.d)), "another run gave other bits, or ran on another stream"
    third = first.fresh()
    run_plan(plan, third.by_role)
    assert torch.equal(bits(first.d), bits(third.d))


def with_naive(bench: Bench) -> tuple[LaunchPlan, Operands]:
    case = CASES[3]
    return bench.plan(LADDER[0], case, FP32, "ieee"), bench.of(case, FP32, "ieee").fresh()


def test_a_thread_that_torch_has_not_seen(bench: Bench) -> None:
    plan, operands = with_naive(bench)
    prepared = prepare(plan, 0)
    addresses = {role: tensor.data_ptr() for role, tensor in operands.by_role.items()}
    failed: list[BaseException] = []

    def work() -> None:
        try:
            prepared.run_addresses(addresses)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert not failed, failed
    assert_right(operands)


def test_a_cuda_graph_replays_a_plan(bench: Bench) -> None:
    plan, operands = with_naive(bench)
    operands.a = operands.a.clone()
    run_plan(plan, operands.by_role)  # loads the code, which a capture may not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run_plan(plan, operands.by_role)
    operands.a.mul_(-3.0)
    operands.d.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert_right(operands)


def test_many_threads_share_a_prepared_plan(bench: Bench) -> None:
    plan, operands = with_naive(bench)
    prepared = prepare(plan, 0)
    outputs = [operands.fresh() for _ in range(8)]

    def work(mine: Operands) -> None:
        for _ in range(20):
            prepared.run(mine.by_role)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in outputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    for mine in outputs:
        assert_right(mine)


def test_host_time_of_a_prepared_launch(bench: Bench) -> None:
    """Printed, and held against a generous limit: the point of the direct launch is that it costs microseconds."""
    import time

    plan, operands = with_naive(bench)
    prepared = prepare(plan, 0)
    calls: dict[str, Callable[[], Any]] = {
        "run": lambda: prepared.run(operands.by_role),
        "run_plan": lambda: run_plan(plan, operands.by_role),
    }
    for name, call in calls.items():
        best = float("inf")
        for _ in range(20):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(50):
                call()
            best = min(best, (time.perf_counter() - start) / 50)
        print(f"{name}: {best * 1e6:.1f} us of host time a launch")
        assert best < 50e-6
    torch.cuda.synchronize()


