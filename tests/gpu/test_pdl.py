"""Launches that begin while the one before them runs: a chain of them gives the bits of the same chain run in order.

Each product's D is the next one's A, in two buffers by turns, so that every launch reads what the one before wrote and
overwrites what it read. In order: the same machine code launched without overlap, and synchronised after each launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from overlapping_kernels import slow_step_kernel  # noqa: E402
from seeding import SEED  # noqa: E402

from rungemm.bench.checking import check_outputs  # noqa: E402
from rungemm.compiling import CompileError, compile_many  # noqa: E402
from rungemm.dtypes import FP32  # noqa: E402
from rungemm.gpu import Prepared, prepare, problem_of  # noqa: E402
from rungemm.hardware import Gpu  # noqa: E402
from rungemm.kernels import LaunchPlan, find_kernel  # noqa: E402
from rungemm.kernels.plan import Launch, Pointer, Scalar  # noqa: E402

LONG = 50
WEIGHTS = 4


@dataclass(frozen=True)
class Case:
    """A product of (m, n) by (n, n), with what its config has instead of the default's."""

    kernel: str
    dtype: Any
    m: int
    n: int
    config: tuple[tuple[str, Any], ...] = ()
    precision: str = "ieee"
    turned: bool = False  # B's neighbours in memory lie along K

    def __str__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.") + ("" if self.precision == "ieee" else f"-{self.precision}")
        changes = "".join(f"-{key}{value}" for key, value in self.config)
        return f"{kind}-{self.m}x{self.n}{'-NT' if self.turned else ''}{changes}"


BF16 = torch.bfloat16
F32 = torch.float32
HOPPER = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "num_warps": 4, "part_n": 64, "buffers": 1, "stages": 4}
CASES = (
    Case("champion_hopper", BF16, 1, 1024, turned=True),
    Case("champion_hopper", BF16, 16, 4096, turned=True),
    Case("champion_hopper", BF16, 128, 256),
    Case("champion_hopper", BF16, 64, 1024, (*HOPPER.items(), ("splits", 4))),
    Case("champion_hopper", BF16, 192, 704, (*HOPPER.items(), ("stream", True))),
    Case("champion_hopper", BF16, 256, 512, (*HOPPER.items(), ("schedule", "turns"))),
    Case("champion_hopper", BF16, 99, 333),  # operands copied first, D by ordinary stores
    Case("champion_hopper", F32, 64, 256, precision="tf32"),  # B copied first
    Case("champion_fp32", F32, 128, 128),
    Case("champion_fp32", F32, 33, 77),
    Case("champion_fp32", F32, 64, 1024, (("k_groups", 1), ("tile_m", 64), ("tile_n", 64), ("tile_k", 16),
                                           ("num_warps", 4), ("thread_n", 4), ("max_registers", 0), ("splits", 8))),
    Case("champion_fp32", F32, 200, 333, (("k_groups", 1), ("realign", True))),
    Case("champion_fp32", F32, 128, 512, (("k_groups", 1), ("flush_k", 128))),
)  # fmt: skip


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view({2: torch.int16, 4: torch.int32}[tensor.element_size()])


@dataclass
class Chain:
    """One case: buffers, weights, and its plan both ways."""

    overlapping: Prepared
    serial: Prepared
    x: list[torch.Tensor]
    weight: torch.Tensor
    weights: list[torch.Tensor]
    start: torch.Tensor
    problem: Any

    def fresh(self, generator: torch.Generator) -> None:
        """New data: what is multiplied by keeps the size of its values."""
        n = self.weight.shape[0]
        self.start.copy_(torch.randn(self.start.shape, generator=generator, device="cuda"))
        for weight in self.weights:
            weight.copy_(torch.randn(n, n, generator=generator, device="cuda") / n**0.5)

    def begin(self) -> None:
        self.x[0].copy_(self.start)
        self.x[1].fill_(float("nan"))
        self.weight.fill_(float("nan"))

    def run(self, how: Prepared, then: Callable[[], None] = lambda: None) -> torch.Tensor:
        """LONG products, nothing between them; ``then`` after each."""
        self.begin()
        for step in range(LONG):
            how.run({"A": self.x[step % 2], "B": self.weights[step % WEIGHTS], "D": self.x[(step + 1) % 2]})
            then()
        return self.x[LONG % 2]

    def run_mixed(self, how: Prepared, then: Callable[[], None] = lambda: None) -> torch.Tensor:
        """The same, but torch writes B right before each product and destroys A right after it."""
        self.begin()
        for step in range(LONG):
            self.weight.copy_(self.weights[step % WEIGHTS])
            then()
            how.run({"A": self.x[step % 2], "B": self.weight, "D": self.x[(step + 1) % 2]})
            then()
            self.x[step % 2].fill_(float("nan"))
        return self.x[LONG % 2]


@pytest.fixture(scope="module")
def generator() -> torch.Generator:
    return torch.Generator("cuda").manual_seed(SEED)


@pytest.fixture(scope="module", autouse=True)
def asked() -> Iterator[None]:
    """Launches overlap only when asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNGEMM_PDL", "1")
        yield


@pytest.fixture(scope="module")
def chains(card: Gpu) -> dict[Case, Chain]:
    """Every case, compiled together."""
    if card.arch < 90:
        pytest.skip(f"{card.title} has no launches that overlap")
    made: dict[Case, tuple[LaunchPlan, Any, dict[str, Any]]] = {}
    for case in CASES:
        kernel = find_kernel(case.kernel)

        def square(n: int = case.n, case: Case = case) -> torch.Tensor:
            weight = torch.empty(n, n, dtype=case.dtype, device="cuda")
            return weight.t() if case.turned else weight

        tensors = {
            "x": [torch.empty(case.m, case.n, dtype=case.dtype, device="cuda") for _ in range(2)],
            "weight": square(), "weights": [square() for _ in range(WEIGHTS)],
            "start": torch.empty(case.m, case.n, dtype=case.dtype, device="cuda"),
        }  # fmt: skip
        x = tensors["x"]
        problem = problem_of(x[0], tensors["weight"], None, x[1], 1.0, 0.0, case.precision)  # type: ignore[arg-type]
        if case.config:
            config = replace(kernel.config_type(), **dict(case.config))
        else:
            config = kernel.default_config(problem, card)
        made[case] = kernel.plan(problem, config, card), problem, tensors
    results = compile_many([(plan, card.arch) for plan, *_ in made.values()])
    failed = [str(result) for result in results if isinstance(result, CompileError)]
    assert not failed, failed
    return {
        case: Chain(prepare(plan), prepare(plan.serialised()), problem=problem, **tensors)
        for case, (plan, problem, tensors) in made.items()
    }


def attributes(prepared: Prepared) -> list[int]:
    return [kernel.config.attribute_count for kernel in prepared._kernels]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_chain_gives_the_bits_of_one_in_order(case: Case, chains: dict[Case, Chain], generator: Any) -> None:
    chain = chains[case]
    count = len(chain.overlapping.plan.launches)
    assert attributes(chain.overlapping) == [1] * count and attributes(chain.serial) == [0] * count
    for mixed in (False, True):
        run = chain.run_mixed if mixed else chain.run
        for _ in range(3):
            chain.fresh(generator)
            wanted = bits(run(chain.serial, torch.cuda.synchronize)).clone()
            assert torch.isfinite(chain.x[LONG % 2].float()).all()
            torch.cuda.synchronize()
            got = bits(run(chain.overlapping))
            torch.cuda.synchronize()
            assert torch.equal(got, wanted), f"{'mixed' if mixed else 'alone'}; RUNGEMM_SEED={SEED}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_product_is_right(case: Case, chains: dict[Case, Chain], generator: Any) -> None:
    chain = chains[case]
    chain.fresh(generator)
    chain.begin()
    operands = {"A": chain.x[0], "B": chain.weights[0], "D": chain.x[1]}
    chain.overlapping.run(operands)
    checked = check_outputs(chain.problem, [operands], {"ours": [chain.x[1]]})["ours"]
    assert checked.ok, f"{checked.why}; RUNGEMM_SEED={SEED}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_captured_chain_gives_the_same_bits(case: Case, chains: dict[Case, Chain], generator: Any) -> None:
    chain = chains[case]
    chain.fresh(generator)
    chain.run(chain.overlapping)  # whatever is made once is made outside the capture
    torch.cuda.synchronize()
    for run in (chain.run, chain.run_mixed):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run(chain.overlapping)
        for _ in range(3):
            chain.fresh(generator)
            wanted = bits(run(chain.serial, torch.cuda.synchronize)).clone()
            chain.x[LONG % 2].fill_(float("nan"))
            torch.cuda.synchronize()
            # Replays one after the other: the second begins with what the first still used.
            graph.replay()
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(bits(chain.x[LONG % 2]), wanted), f"RUNGEMM_SEED={SEED}"
        del graph


def test_different_kernels_share_a_chain(chains: dict[Case, Chain], generator: Any) -> None:
    """Two chains side by side on one stream: launches of one plan and of another, with workspaces, alternate."""
    pairs = [(chains[CASES[3]], chains[CASES[10]]), (chains[CASES[0]], chains[CASES[8]])]
    for first, second in pairs:
        for chain in (first, second):
            chain.fresh(generator)
        wanted = [bits(chain.run(chain.serial, torch.cuda.synchronize)).clone() for chain in (first, second)]
        for chain in (first, second):
            chain.begin()
        for step in range(LONG):
            for chain in (first, second):
                here, there = chain.x[step % 2], chain.x[(step + 1) % 2]
                chain.overlapping.run({"A": here, "B": chain.weights[step % WEIGHTS], "D": there})
        torch.cuda.synchronize()
        for chain, bits_wanted in zip((first, second), wanted, strict=True):
            assert torch.equal(bits(chain.x[LONG % 2]), bits_wanted), f"RUNGEMM_SEED={SEED}"


def slow_step(wait: bool, pdl: bool) -> LaunchPlan:
    arguments = (
        ("x", Pointer("A", FP32)), ("y", Pointer("D", FP32)),
        ("steps", Scalar.index(20_000)), ("one", Scalar.real(1.0)),
    )  # fmt: skip
    return LaunchPlan("slow", (Launch(slow_step_kernel, (8, 1, 1), arguments, (("WAIT", wait),), 4, pdl=pdl),))


@pytest.mark.parametrize("captured", [False, True], ids=["stream", "graph"])
def test_launches_do_overlap_and_only_the_wait_keeps_their_order(card: Gpu, captured: bool) -> None:
    """The control: without the wait a chain of slow steps reads what is not written yet: the tests above can fail."""
    if card.arch < 90:
        pytest.skip(f"{card.title} has no launches that overlap")
    x = [torch.zeros(8 * 128, device="cuda") for _ in range(2)]

    def steps(how: Prepared) -> None:
        for step in range(10):
            how.run({"A": x[step % 2], "D": x[(step + 1) % 2]})

    results = {}
    for wait, pdl in ((True, True), (False, False), (False, True)):
        how = prepare(slow_step(wait, pdl))
        steps(how)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph() if captured else None
        if graph is not None:
            with torch.cuda.graph(graph):
                steps(how)
        for tensor in x:
            tensor.zero_()
        torch.cuda.synchronize()
        if graph is not None:
            graph.replay()
        else:
            steps(how)
        torch.cuda.synchronize()
        results[wait, pdl] = x[0].clone()
    assert (results[True, True] == 10).all() and (results[False, False] == 10).all()
    assert not (results[False, True] == 10).all(), "launches do not overlap: what is tested here is not at work"
