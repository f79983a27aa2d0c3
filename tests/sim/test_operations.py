"""Gluon's operations one by one: values, types, layouts, and the errors of misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rungemm.compat import aggregate, constexpr, gl, gluon, jit, mma_v2
from rungemm.sim import NotSimulated, SimulationFault, run

ROW = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))
TILE = gl.constexpr(gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0]))
PLAIN2 = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))


def fault_of(kernel: Any, *args: Any, **constants: Any) -> SimulationFault:
    with pytest.raises(SimulationFault) as caught:
        run(kernel, 1, *args, **constants)
    assert caught.value.file.endswith("test_operations.py")
    return caught.value


@jit
def scalar_kernel(out, a, b):
    gl.store(out + 0, a // b)
    gl.store(out + 1, a % b)
    gl.store(out + 2, a * 1000000)
    gl.store(out + 3, (a > b).to(gl.int32))
    gl.store(out + 4, gl.cdiv(a, b))
    gl.store(out + 5, min(a, b))
    gl.store(out + 6, ~a)
    gl.store(out + 7, (~(a > b)).to(gl.int32))
    total = 0
    for i in range(0, 10, 3):
        total += i
    gl.store(out + 8, total)
    wrapped = total == 18
    gl.store(out + 9, wrapped.to(gl.int32))


def test_runtime_integers_wrap_and_divide_as_c() -> None:
    for a, b in ((-7, 2), (7, -2), (123456, 17)):
        out = np.zeros(10, np.int32)
        run(scalar_kernel, 1, out, a, b)
        quotient = int(a / b)
        wrapped = (a * 1000000 + 2**31) % 2**32 - 2**31
        ceiling = int((a + b - 1) / b)
        expected = [quotient, a - quotient * b, wrapped, a > b, ceiling, min(a, b), ~a, a <= b, 18, 1]
        assert out.tolist() == [int(e) for e in expected]


@jit
def tile_integers_kernel(x, out):
    at = gl.arange(0, 128, ROW)
    value = gl.load(x + at)
    gl.store(out + at, value // 3)
    gl.store(out + 128 + at, value % 3)
    gl.store(out + 256 + at, value * 100000)
    gl.store(out + 384 + at, gl.minimum(value, 5) + gl.where(value < 0, 1, 0))


def test_integer_tiles_divide_as_c(rng: np.random.Generator) -> None:
    x = rng.integers(-100000, 100000, 128).astype(np.int32)
    out = np.zeros(512, np.int32)
    run(tile_integers_kernel, 1, x, out)
    quotient = np.trunc(x / 3).astype(np.int32)
    assert (out[:128] == quotient).all()
    assert (out[128:256] == x - 3 * quotient).all()
    with np.errstate(over="ignore"):
        assert (out[256:384] == x * np.int32(100000)).all()
    assert (out[384:] == np.minimum(x, 5) + (x < 0)).all()


@jit
def contraction_kernel(x, y, z, out):
    at = gl.arange(0, 128, ROW)
    a, b, c = gl.load(x + at), gl.load(y + at), gl.load(z + at)
    gl.store(out + at, a * b + c)
    gl.store(out + 128 + at, gl.fma(a, b, c))
    gl.store(out + 256 + at, c - a * b)


def test_a_product_and_a_sum_are_contracted(rng: np.random.Generator) -> None:
    x, y, z = rng.standard_normal((3, 128)).astype(np.float32)
    out = np.zeros(384, np.float32)
    run(contraction_kernel, 1, x, y, z, out)
    assert (out[:128] == out[128:256]).all()
    assert (out[256:] == (z.astype(np.float64) - x.astype(np.float64) * y).astype(np.float32)).all()


@jit
def half_kernel(x, out):
    at = gl.arange(0, 128, ROW)
    value = gl.load(x + at)
    gl.store(out + at, (value + 1.0) * 2)
    gl.store(out + 128 + at, value.to(gl.float32) / 3.0)


def test_constants_take_the_type_of_the_tile(rng: np.random.Generator) -> None:
    x = rng.standard_normal(128).astype(np.float16)
    out = np.zeros(256, np.float16)
    run(half_kernel, 1, x, out)
    assert (out[:128] == (x + np.float16(1)) * np.float16(2)).all()
    assert (out[128:] == (x.astype(np.float32) / np.float32(3)).astype(np.float16)).all()


@jit
def reduction_kernel(x, out, ROWS: constexpr):
    rows = gl.arange(0, 16, gl.SliceLayout(1, TILE))
    cols = gl.arange(0, 64, gl.SliceLayout(0, TILE))
    value = gl.load(x + rows[:, None] * 64 + cols[None, :])
    if ROWS:
        gl.store(out + rows, gl.sum(value, 1))
    else:
        gl.store(out + cols, gl.max(value, 0))


def test_reductions_leave_the_slice(rng: np.random.Generator) -> None:
    x = rng.standard_normal((16, 64)).astype(np.float32)
    sums, maxima = np.zeros(16, np.float32), np.zeros(64, np.float32)
    run(reduction_kernel, 1, x, sums, ROWS=True)
    run(reduction_kernel, 1, x, maxima, ROWS=False)
    # Sums in fp32, six levels deep: each rounds what it adds, however much of it cancels.
    allowed = 6 * 2.0**-24 * np.abs(x).sum(1)
    assert (np.abs(sums - x.sum(1, dtype=np.float64)) <= allowed).all()
    assert (maxima == x.max(0)).all()


@jit
def combine(a, b):
    return gl.where(a * a > b * b, a, b)


@jit
def own_reduction_kernel(x, out):
    at = gl.arange(0, 128, ROW)
    gl.store(out, gl.reduce(gl.load(x + at), 0, combine))


def test_a_reduction_with_the_kernels_own_function(rng: np.random.Generator) -> None:
    x = rng.standard_normal(128).astype(np.float32)
    out = np.zeros(1, np.float32)
    run(own_reduction_kernel, 1, x, out)
    assert out[0] == x[np.argmax(np.abs(x))]


@jit
def shared_views_kernel(x, out):
    rows = gl.arange(0, 16, gl.SliceLayout(1, TILE))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, TILE))[None, :]
    shared = gl.allocate_shared_memory(gl.float32, [2] + [16, 64], PLAIN2)  # noqa: RUF005
    shared.index(1).store(gl.load(x + rows * 64 + cols))
    turned = shared.index(1).permute([1, 0]).load(gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1]))
    low = shared.index(1).slice(8, 8, 0).load(TILE)
    flat = shared.index(1).reshape([1024]).load(ROW)
    t_rows = gl.arange(0, 64, gl.SliceLayout(1, gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1])))[:, None]
    t_cols = gl.arange(0, 16, gl.SliceLayout(0, gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1])))[None, :]
    gl.store(out + t_rows * 16 + t_cols, turned)
    low_rows = gl.arange(0, 8, gl.SliceLayout(1, TILE))[:, None]
    gl.store(out + 1024 + low_rows * 64 + cols, low)
    gl.store(out + 1536 + gl.arange(0, 1024, ROW), flat)


def test_shared_memory_views(rng: np.random.Generator) -> None:
    x = rng.standard_normal((16, 64)).astype(np.float32)
    out = np.zeros(2560, np.float32)
    run(shared_views_kernel, 1, x, out)
    assert (out[:1024].reshape(64, 16) == x.T).all()
    assert (out[1024:1536].reshape(8, 64) == x[8:]).all()
    assert (out[1536:] == x.ravel()).all()


@jit
def reinterpret_kernel(x, out):
    """Sixteen floats of one row are read as halves of a row-padded tile of other shape."""
    at = gl.arange(0, 128, ROW)
    shared = gl.allocate_shared_memory(gl.float32, [128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    shared.store(gl.load(x + at))
    words = shared._reinterpret(gl.int32, [128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    gl.store(out + at, words.load(ROW))
    halves = shared._reinterpret(gl.int16, [256], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    gl.store(out + 128 + gl.arange(0, 256, ROW), halves.load(ROW).to(gl.int32))


def test_the_same_bytes_as_another_type(rng: np.random.Generator) -> None:
    x = rng.standard_normal(128).astype(np.float32)
    out = np.zeros(384, np.int32)
    run(reinterpret_kernel, 1, x, out)
    assert (out[:128] == x.view(np.int32)).all()
    assert (out[128:] == x.view(np.int16)).all()


@aggregate
class Range:
    start: gl.tensor
    length: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, start, length):
        self.start = start
        self.length = gl.constexpr(length)

    @jit
    def offsets(self):
        return self.start + gl.arange(0, self.length, ROW)


@jit
def aggregate_kernel(x, out):
    part = Range(gl.program_id(0) * 128, 128)
    gl.store(out + part.offsets(), gl.load(x + part.offsets()) * 2.0)


def test_aggregates_and_their_methods(rng: np.random.Generator) -> None:
    x = rng.standard_normal(384).astype(np.float32)
    out = np.zeros(384, np.float32)
    run(aggregate_kernel, 3, x, out)
    assert (out == x * 2).all()


@jit
def dot_kernel(a, b, out, FMA: constexpr):
    if FMA:
        ACC: constexpr = gl.BlockedLayout([2, 2], [4, 8], [4, 1], [1, 0])
    else:
        ACC: constexpr = gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8])
    LEFT: constexpr = gl.DotOperandLayout(0, ACC, 0 if FMA else 2)
    RIGHT: constexpr = gl.DotOperandLayout(1, ACC, 0 if FMA else 2)
    m = gl.arange(0, 64, gl.SliceLayout(1, LEFT))[:, None]
    k = gl.arange(0, 16, gl.SliceLayout(0, LEFT))[None, :]
    left = gl.load(a + m * 16 + k)
    k2 = gl.arange(0, 16, gl.SliceLayout(1, RIGHT))[:, None]
    n = gl.arange(0, 16, gl.SliceLayout(0, RIGHT))[None, :]
    right = gl.load(b + k2 * 16 + n)
    acc = gl.zeros([64, 16], gl.float32, ACC)
    if FMA:
        acc = gl.dot_fma(left, right, acc)
    else:
        acc = mma_v2(left, right, acc)
    rows = gl.arange(0, 64, gl.SliceLayout(1, ACC))[:, None]
    cols = gl.arange(0, 16, gl.SliceLayout(0, ACC))[None, :]
    gl.store(out + rows * 16 + cols, acc)


def test_products_of_register_tiles(rng: np.random.Generator) -> None:
    for fma, dtype in ((True, np.float32), (False, np.float16)):
        a, b = rng.standard_normal((64, 16)).astype(dtype), rng.standard_normal((16, 16)).astype(dtype)
        out = np.zeros((64, 16), np.float32)
        run(dot_kernel, 1, a, b, out, FMA=fma)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        assert np.abs(out - exact).max() <= (1e-5 if fma else np.spacing(np.abs(exact).max().astype(np.float32)))


@jit
def atomic_kernel(counter, out, n):
    before = gl.atomic_add(counter, 1)
    at = gl.arange(0, 128, ROW)
    gl.atomic_add(out + at, gl.full([128], 1.0, gl.float32, ROW), sem="relaxed")
    if before == n - 1:
        gl.store(counter + 1, before)


def test_atomics_add_up_over_programs() -> None:
    counter, out = np.zeros(2, np.int32), np.zeros(128, np.float32)
    run(atomic_kernel, 5, counter, out, 5, processes=2)
    assert counter.tolist() == [5, 4]
    assert (out == 5).all()


@jit
def last_one_adds_kernel(parts, counter, out, n, ORDERED: constexpr):
    program = gl.program_id(0)
    at = gl.arange(0, 128, ROW)
    gl.store(parts + program * 128 + at, gl.full([128], 1.0, gl.float32, ROW))
    if ORDERED:
        before = gl.atomic_add(counter, 1)
    else:
        before = program
    if before == n - 1:
        total = gl.zeros([128], gl.float32, ROW)
        for i in range(n):
            total += gl.load(parts + i * 128 + at)
        gl.store(out + at, total)


def test_an_atomic_orders_programs_and_nothing_else_does() -> None:
    def arguments() -> tuple[Any, ...]:
        return np.full(4 * 128, np.nan, np.float32), np.zeros(1, np.int32), np.zeros(128, np.float32), 4

    parts, counter, out, n = arguments()
    run(last_one_adds_kernel, 4, parts, counter, out, n, ORDERED=True)
    assert (out == 4).all()
    with pytest.raises(SimulationFault) as caught:
        run(last_one_adds_kernel, 4, *arguments(), ORDERED=False)
    assert caught.value.kind == "program-dependence"


@jit
def spinning_kernel(flag, EARLIER: constexpr):
    program = gl.program_id(0)
    WANTED: constexpr = 0 if EARLIER else 1
    if program == 1 - WANTED:
        while gl.atomic_add(flag, 0) == 0:
            pass
    else:
        gl.atomic_add(flag, 1)


def test_a_program_may_wait_for_an_earlier_one_only() -> None:
    run(spinning_kernel, 2, np.zeros(1, np.int32), EARLIER=True)
    with pytest.raises(SimulationFault, match="one after the other") as caught:
        run(spinning_kernel, 2, np.zeros(1, np.int32), EARLIER=False)
    assert caught.value.kind == "deadlock"


@jit
def unknown_kernel(x):
    at = gl.arange(0, 128, ROW)
    value = gl.load(x + at)
    gl.store(x + at, gl.associative_scan(value, 0, combine))


def test_an_unknown_operation_is_named_with_its_line() -> None:
    fault = fault_of(unknown_kernel, np.zeros(128, np.float32))
    assert isinstance(fault, NotSimulated)
    assert "associative_scan is not simulated" in str(fault)
    assert fault.line == unknown_kernel.fn.__code__.co_firstlineno + 4


@jit
def misuse_kernel(x, CASE: constexpr):
    at = gl.arange(0, 128, ROW)
    value = gl.load(x + at)
    if CASE == "rank":
        value = value + gl.full([1, 128], 1.0, gl.float32, TILE)
    elif CASE == "float pointer":
        value = gl.load(x + value)
    elif CASE == "assert":
        gl.static_assert(value.shape[0] == 64, "want 64")
    elif CASE == "store type":
        shared = gl.allocate_shared_memory(gl.float16, [128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        shared.store(value)
    elif CASE == "runtime slice":
        shared = gl.allocate_shared_memory(gl.float32, [256], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        for i in range(2):
            shared.slice(i * 128, 128, 0).store(value)
    elif CASE == "index":
        value = value[0]
    elif CASE == "arange":
        value = gl.arange(0, 100, ROW)
    elif CASE == "expand":
        value = value[:, None]


@pytest.mark.parametrize(
    ("case", "kind", "word"),
    [
        ("rank", "layout-mismatch", "operator add"), ("float pointer", "type-error", "integers"),
        ("assert", "kernel-error", "want 64"), ("store type", "type-error", ".to()"),
        ("runtime slice", "type-error", "compile-time"), ("index", "type-error", "indexed"),
        ("arange", "type-error", "power of two"), ("expand", "layout-mismatch", "SliceLayout"),
    ],
)  # fmt: skip
def test_misuse_is_explained(case: str, kind: str, word: str) -> None:
    fault = fault_of(misuse_kernel, np.zeros(128, np.float32), CASE=case)
    assert fault.kind == kind, fault
    assert word in str(fault)


@jit
def python_error_kernel(x):
    at = gl.arange(0, 128, ROW)
    nothing = gl.load(x + at).no_such_thing
    gl.store(x + at, nothing)


def test_any_other_error_of_the_kernel_has_its_line() -> None:
    fault = fault_of(python_error_kernel, np.zeros(128, np.float32))
    assert fault.kind == "kernel-error"
    assert "no_such_thing" in str(fault)
    assert fault.line == python_error_kernel.fn.__code__.co_firstlineno + 3
