"""Batches on the card: every product against float64, outputs poisoned, and nothing beside D written."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from seeding import SEED  # noqa: E402

from rungemm.bench.checking import check_outputs  # noqa: E402
from rungemm.compiling import compile_many  # noqa: E402
from rungemm.gpu import problem_of, run_plan  # noqa: E402
from rungemm.hardware import Gpu  # noqa: E402
from rungemm.kernels import BATCHED, Kernel, find_kernel  # noqa: E402
from rungemm.problem import Problem  # noqa: E402

GUARD = 64
"""Elements before and after each operand."""

Case = tuple[str, Problem, dict[str, "torch.Tensor | None"], "torch.Tensor"]


def placed(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, fill: bool) -> torch.Tensor:
    """A tensor in a buffer of NaN, 64 elements from its start: random, or, not ``fill``, NaN as well."""
    reach = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + 1
    base = torch.full((GUARD + reach + GUARD,), float("nan"), dtype=dtype, device="cuda")
    if fill:  # once each: elements may share a place
        extents = [1 if stride == 0 else n for n, stride in zip(shape, strides, strict=True)]
        once = base.as_strided(extents, strides, GUARD)
        once.copy_(torch.randn(once.shape, device="cuda").to(dtype))
    return base.as_strided(shape, strides, GUARD)


def dense(batch: int, rows: int, cols: int, transposed: bool = False) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (batch, rows, cols), (rows * cols, 1, rows) if transposed else (rows * cols, cols, 1)


def case(
    batch: int, m: int, n: int, k: int, *, dtype: torch.dtype = torch.float16, layout: str = "NN",
    out: torch.dtype | None = None, alpha: float = 1.0, beta: float = 0.0, precision: str = "ieee",
    strides: dict[str, tuple[int, ...]] | None = None,
) -> Case:  # fmt: skip
    """Operands with the strides given by role, else dense."""
    given = strides or {}
    extents = {"A": dense(batch, m, k, layout[0] == "T"), "B": dense(batch, k, n, layout[1] == "T")}
    extents |= {"C": dense(batch, m, n), "D": dense(batch, m, n)}
    made = {}
    for role, (shape, usual) in extents.items():
        to = dtype if role in "AB" else out or dtype
        made[role] = placed(shape, given.get(role, usual), to, role in "AB" or (role == "C" and beta != 0))
    a, b, c, d = made["A"], made["B"], made["C"], made["D"]
    problem = problem_of(a, b, c if beta != 0 else None, d, alpha, beta, precision)  # type: ignore[arg-type]
    return f"{problem} {given}", problem, {"A": a, "B": b, "C": c if beta != 0 else None, "D": d}, d


def run_all(kernel: Kernel, cases: list[Case], card: Gpu) -> None:
    """Compile them all, run, hold against float64, and look beside D."""
    plans = [kernel.plan(problem, kernel.default_config(problem, card), card) for _, problem, _, _ in cases]
    compile_many([(plan, card.arch) for plan in plans])
    wrong = []
    for plan, (label, problem, operands, d) in zip(plans, cases, strict=True):
        run_plan(plan, operands)
        checked = check_outputs(problem, [operands], {"ours": [d]})["ours"]
        whole = d._base
        assert whole is not None
        inside = torch.zeros_like(whole, dtype=torch.bool)
        inside.as_strided(d.shape, d.stride(), d.storage_offset()).fill_(True)
        outside = int((~whole.isnan() & ~inside).sum())
        if outside or not checked.ok:
            wrong.append(f"{label}: {outside} written outside D; {checked.why}")
    assert not wrong, f"{kernel.name}, {len(wrong)} of {len(cases)}:\n" + "\n".join(wrong[:20])


NAMES = [kernel.name for kernel in BATCHED]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(SEED)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_layouts(name: str, card: Gpu) -> None:
    cases = [
        case(batch, *shape, layout=layout, dtype=dtype, alpha=1.5, beta=beta)
        for batch, shape in ((3, (130, 72, 88)), (5, (77, 65, 51)), (64, (127, 129, 65)), (7, (1, 9, 3)))
        for layout in ("NN", "NT", "TN", "TT")
        for dtype, beta in ((torch.float16, 0.0), (torch.bfloat16, -0.5))
    ]
    cases += [case(1, 333, 777, 555), case(2, 256, 512, 1024, out=torch.float32), case(40, 512, 512, 512)]
    run_all(find_kernel(name), cases, card)


@pytest.mark.parametrize("name", NAMES)
def test_tf32(name: str, card: Gpu) -> None:
    cases = [
        case(5, *shape, dtype=torch.float32, precision="tf32", layout=layout)
        for shape in ((68, 72, 40), (77, 65, 51), (256, 256, 256))
        for layout in ("NN", "NT", "TT")
    ]
    run_all(find_kernel(name), cases, card)


@pytest.mark.parametrize("name", NAMES)
def test_strides(name: str, card: Gpu) -> None:
    """Operands that all products share, heads between one another, gaps, products that begin anywhere."""
    heads, tokens, width = 12, 200, 64
    between = (width, heads * width, 1)
    cases = [
        case(6, 72, 40, 64, strides={"A": (0, 64, 1)}),
        case(6, 72, 40, 64, strides={"B": (0, 40, 1)}, beta=1.0),
        case(6, 77, 65, 51, strides={"B": (0, 65, 1)}),
        case(heads, tokens, tokens, width, strides={"A": between, "B": (width, 1, heads * width)}),
        case(heads, tokens, width, tokens, strides={"B": between, "D": between}),
        case(3, 40, 48, 56, strides={"D": (40 * 48 + 1, 48, 1)}),
        case(3, 40, 48, 56, strides={"D": (40 * 51, 51, 1)}),
        case(3, 40, 48, 56, strides={"A": (40 * 64 + 16, 64, 1)}),
        case(3, 40, 48, 56, strides={"B": (56 * 49, 49, 1)}),
        case(3, 129, 66, 56, strides={"D": (129 * 72, 72, 1)}),  # lines end inside a group of 16 bytes
    ]
    run_all(find_kernel(name), cases, card)


@pytest.mark.parametrize("name", NAMES)
def test_more_products_than_a_grid_is_wide(name: str, card: Gpu) -> None:
    """Bug case (g) of issue 7: the last product of 65536, and one more."""
    cases = [
        case(65536, 8, 8, 64, out=None), case(65536, 225, 1, 4), case(65537, 5, 3, 7),
        case(65536, 8, 8, 64, strides={"B": (0, 8, 1)}),
    ]  # fmt: skip
    run_all(find_kernel(name), cases, card)
    for _, problem, operands, d in cases:
        a, b = operands["A"], operands["B"]
        assert a is not None and b is not None
        last = a[-1].double() @ b[-1].double()
        assert torch.allclose(d[-1].double(), last, rtol=2e-3, atol=2e-3), problem


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_multiply(name: str, card: Gpu) -> None:
    kernel = find_kernel(name)
    for alpha, beta, k in ((0.0, 0.0, 24), (0.0, 2.0, 24), (1.0, 0.5, 0), (1.0, 0.0, 0)):
        a, b = (torch.full(shape, float("nan"), device="cuda").half() for shape in ((3, 70, k), (3, k, 33)))
        c = torch.randn(3, 70, 33, device="cuda").half() if beta else torch.full((3, 70, 33), float("nan"),
                                                                                    device="cuda").half()  # fmt: skip
        d = torch.full((3, 70, 33), float("nan"), device="cuda").half()
        problem = problem_of(a, b, c, d, alpha, beta)
        run_plan(kernel.plan(problem, kernel.default_config(problem, card), card), {"A": a, "B": b, "C": c, "D": d})
        wanted = beta * c.double() if beta else torch.zeros_like(c, dtype=torch.float64)
        assert torch.allclose(d.double(), wanted, rtol=2e-3, atol=1e-3), (alpha, beta, k)


@pytest.mark.parametrize("name", NAMES)
def test_every_run_gives_the_same_bits(name: str, card: Gpu) -> None:
    kernel = find_kernel(name)
    _, problem, operands, d = case(32, 333, 200, 555)
    plan = kernel.plan(problem, kernel.default_config(problem, card), card)
    run_plan(plan, operands)
    first = d.clone()
    for _ in range(20):
        d.fill_(float("nan"))
        run_plan(plan, operands)
        assert torch.equal(d.view(torch.int16), first.view(torch.int16))


@pytest.mark.parametrize("schedule", ["together", "halves", "turns"])
@pytest.mark.parametrize("swap", [False, True])
def test_schedules_of_the_persistent_kernel(schedule: str, swap: bool, card: Gpu) -> None:
    """Many more tiles than programs, so that the ring and the turns run across products."""
    kernel = find_kernel("champion_batched")
    cases = [case(200, 130, 200, 88), case(150, 77, 265, 200, beta=1.0), case(300, 264, 40, 264)]
    plans = []
    for _, problem, _, _ in cases:
        found = [c for c in kernel.configs(problem, card) if c.schedule == schedule and c.swap == swap]
        plans += [kernel.plan(problem, replace(found[0]), card)] if found else [None]
    compile_many([(plan, card.arch) for plan in plans if plan is not None])
    assert any(plans)
    for plan, (label, problem, operands, d) in zip(plans, cases, strict=True):
        if plan is not None:
            run_plan(plan, operands)
            checked = check_outputs(problem, [operands], {"ours": [d]})["ours"]
            assert checked.ok, f"{label}: {checked.why}"


def test_library_bmm(card: Gpu) -> None:
    """Through the public function, whoever is called: bug case (g), shared operands, odd shapes; and vmap."""
    import rungemm

    for shapes in (
        ((65536, 8, 64), (65536, 64, 8)), ((65536, 225, 4), (65536, 4, 1)), ((64, 127, 65), (64, 65, 129)),
        ((32, 333, 555), (32, 555, 777)), ((1, 5, 7), (1, 7, 3)), ((256, 49, 32), (256, 32, 49)),
    ):  # fmt: skip
        a, b = (torch.randn(shape, device="cuda").half() for shape in shapes)
        wanted = torch.bmm(a.double(), b.double())
        for attempt in range(2):
            got = rungemm.bmm(a, b).double()
            assert torch.allclose(got, wanted, rtol=4e-3, atol=4e-3 * shapes[0][2] ** 0.5), (shapes, attempt)
            assert torch.allclose(got[-1], wanted[-1], rtol=4e-3, atol=4e-3 * shapes[0][2] ** 0.5), (shapes, attempt)
        shared = b[:1].expand_as(b)
        got = rungemm.bmm(a, shared).double()
        wanted = torch.bmm(a.double(), shared.double())
        assert torch.allclose(got, wanted, rtol=4e-3, atol=4e-3 * shapes[0][2] ** 0.5), shapes
