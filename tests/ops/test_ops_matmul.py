"""matmul, bmm: every shape and stride that torch.matmul takes, against float64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from ops_checks import FLOATS, assert_close, normal, poisoned, size_of  # noqa: E402

import rungemm  # noqa: E402

SHAPES = [
    ((3,), (3,)), ((3,), (3, 5)), ((4, 3), (3,)), ((4, 3), (3, 5)), ((2, 4, 3), (3, 5)), ((2, 4, 3), (3,)),
    ((3,), (2, 3, 5)), ((4, 3), (2, 3, 5)), ((2, 4, 3), (2, 3, 5)), ((2, 1, 4, 3), (6, 3, 5)), ((1, 4, 3), (7, 3, 5)),
    ((7, 4, 3), (1, 3, 5)), ((2, 3, 4, 3), (1, 1, 3, 5)), ((1, 1), (1, 1)), ((1, 1, 1), (1, 1)), ((4, 3), (1, 1, 3, 5)),
]  # fmt: skip
EMPTY = [
    ((0, 3), (3, 5)), ((4, 0), (0, 5)), ((4, 3), (3, 0)), ((0, 0), (0, 0)), ((0, 4, 3), (0, 3, 5)), ((2, 4, 0), (0, 5)),
    ((2, 0, 3), (3, 5)), ((0, 4, 3), (3, 5)), ((2, 1, 0), (2, 0, 1)), ((0,), (0,)), ((1, 4, 3), (0, 3, 5)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES, ids=str)
def test_shapes_broadcast_as_torch_has_them(a_shape, b_shape, dtype, rng, device) -> None:
    a, b = normal(rng, *a_shape, dtype=dtype, device=device), normal(rng, *b_shape, dtype=dtype, device=device)
    got = rungemm.matmul(a, b)
    assert got.dtype == dtype
    assert_close(got, torch.matmul(a.double(), b.double()), 3)


@pytest.mark.parametrize(("a_shape", "b_shape"), EMPTY, ids=str)
def test_empty_extents(a_shape, b_shape, device) -> None:
    a, b = torch.ones(a_shape, device=device), torch.ones(b_shape, device=device)
    want = torch.matmul(a, b)
    got = rungemm.matmul(a, b)
    assert got.shape == want.shape and torch.equal(got, want)
    if want.numel():
        out = poisoned(*want.shape, dtype=torch.float32, device=device)
        assert rungemm.matmul(a, b, out=out) is out and torch.equal(out, want)


def test_bug_b_k_of_zero(device) -> None:
    """(b): an empty sum is 0, whatever out held; beta * C still counts."""
    a, b = torch.ones(2, 1, 0, device=device), torch.ones(2, 0, 1, device=device)
    c = torch.ones(2, 1, 1, device=device)
    assert torch.equal(rungemm.gemm(a, b, c, beta=2.0), torch.full((2, 1, 1), 2.0, device=device))
    out = torch.full((2, 1, 1), 7.0, device=device)
    assert torch.equal(rungemm.gemm(a, b, out=out), torch.zeros(2, 1, 1, device=device))
    assert torch.equal(rungemm.bmm(a, b), torch.zeros(2, 1, 1, device=device))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(1000, 999, 1001), (1, 128, 1), (33, 32, 32), (511, 511, 511)], ids=str)
def test_bug_c_ragged_sizes(shape, dtype, rng, device) -> None:
    m, n, k = shape
    a, b = normal(rng, m, k, dtype=dtype, device=device), normal(rng, k, n, dtype=dtype, device=device)
    out = poisoned(m, n, dtype=dtype, device=device)
    rungemm.matmul(a, b, out=out)
    assert_close(out, a.double() @ b.double(), k)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bug_d_odd_strides_of_extents_of_one(dtype, rng, device) -> None:
    """(d): (32, 1) with strides (1, 1); (384, 1, n) with strides (n, anything, 1): no error, no copy."""
    column = torch.as_strided(normal(rng, 64, dtype=dtype, device=device), (32, 1), (1, 1))
    row = normal(rng, 1, 16, dtype=dtype, device=device)
    assert_close(rungemm.matmul(column, row), column.double() @ row.double(), 1)
    assert_close(rungemm.matmul(row.mT, column.mT), row.double().mT @ column.double().mT, 1)
    rows, k = 384, 4096
    odd = torch.as_strided(normal(rng, rows * k, dtype=dtype, device=device), (rows, 1, k), (k, 1572864, 1))
    weight = normal(rng, k, 24, dtype=dtype, device=device)
    assert_close(rungemm.matmul(odd, weight), odd.double() @ weight.double(), k)
    from rungemm.ops.shapes import pose

    assert pose(odd, weight).a.data_ptr() == odd.data_ptr() and pose(odd, weight).core == (rows, 24)


def test_bug_e_a_view_that_breaks_alignment(rng, device) -> None:
    """(e): a view offset by one element: A, B, the bias or C, also after an aligned call of the same shape."""
    m, n, k, dtype = 64, 48, 32, torch.float16

    def offset(shape: tuple[int, ...]):
        flat = normal(rng, torch.Size(shape).numel() + 1, dtype=dtype, device=device)
        return flat[1:].view(shape)

    def aligned(shape: tuple[int, ...]):
        return normal(rng, *shape, dtype=dtype, device=device)

    order = ("A", "B", "bias", "C")
    cases = ("none", *order, "all", "none")
    makers = {which: [offset if which in (name, "all") else aligned for name in order] for which in cases}
    for which in cases:
        a, b, bias, c = (make(s) for make, s in zip(makers[which], ((m, k), (k, n), (n,), (m, n)), strict=True))
        out = offset((m, n)) if which == "all" else None
        want = a.double() @ b.double()
        assert_close(rungemm.matmul(a, b, out=out), want, k)
        assert_close(rungemm.gemm(a, b, bias=bias), want + bias.double(), k)
        assert_close(rungemm.gemm(a, b, c, beta=0.5, bias=bias), want + 0.5 * c.double() + bias.double(), k, steps=3)


def test_bug_f_rows_of_136_bytes(rng, device) -> None:
    """(f): a row pitch that TMA cannot take."""
    a = normal(rng, 64, 68, dtype=torch.bfloat16, device=device)[:, :64]
    b = normal(rng, 68, 64, dtype=torch.bfloat16, device=device)[:64]
    assert_close(rungemm.matmul(a, b), a.double() @ b.double(), 64)
    assert_close(rungemm.matmul(b.mT, a.mT), b.double().mT @ a.double().mT, 64)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_any_strides(dtype, rng, device) -> None:
    """0, overlapping, transposed, stepped, and their products with each other."""
    base = normal(rng, 4000, dtype=dtype, device=device)
    m, n, k = 24, 16, 40
    as_a = [
        base[: m * k].view(m, k), base[: m * k].view(k, m).mT, base[: m * k * 2].view(m, 2 * k)[:, ::2],
        base[:k].expand(m, k), base[:m, None].expand(m, k), torch.as_strided(base, (m, k), (1, 1)),
        torch.as_strided(base, (m, k), (7, 3)), base[: 2 * m * k].view(2 * m, k)[::2], base[3 : 3 + m * k].view(m, k),
    ]  # fmt: skip
    as_b = [
        base[: k * n].view(k, n), base[: k * n].view(n, k).mT, base[:n].expand(k, n), base[:1, None].expand(k, n),
        torch.as_strided(base, (k, n), (1, 2)), base[5 : 5 + k * n].view(n, k).mT,
    ]  # fmt: skip
    for turn, a in enumerate(as_a):
        # Each A with two of the Bs, others in every run: each pair is a compilation on a card.
        for b in (as_b[turn % len(as_b)], as_b[int(rng.integers(len(as_b)))]):
            out = poisoned(m, n, dtype=dtype, device=device)
            assert_close(rungemm.matmul(a, b, out=out), a.double() @ b.double(), k, size=size_of(a, b))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_batches_of_any_strides(dtype, rng, device) -> None:
    base = normal(rng, 3000, dtype=dtype, device=device)
    a = torch.as_strided(base, (5, 8, 6), (48, 6, 1))
    for a_batch in (a, a.transpose(1, 2).contiguous().transpose(1, 2), a[:1].expand(5, 8, 6), a.flip(0), a[::2]):
        count = a_batch.shape[0]
        for b in (base[: 6 * 7].view(6, 7), base[: 6 * 7 * count].view(count, 7, 6).mT):
            assert_close(rungemm.matmul(a_batch, b), a_batch.double() @ b.double(), 6)
    heads = base[: 2 * 5 * 3 * 8].view(2, 5, 3, 8).transpose(1, 2)  # attention's (batch, heads, tokens, width)
    assert_close(rungemm.matmul(heads, heads.mT), heads.double() @ heads.double().mT, 8)


def test_nothing_bleeds_in_from_beyond_an_edge(rng, device) -> None:
    """Operands inside a sea of NaN, results inside a sea that must not move."""
    for dtype in FLOATS:
        for m, n, k in ((17, 19, 23), (64, 64, 64), (33, 1, 7)):
            sea = poisoned(m + 9, k + 9, dtype=dtype, device=device)
            a = sea[4 : 4 + m, 4 : 4 + k]
            a.copy_(normal(rng, m, k, dtype=dtype))
            other = poisoned(k + 9, n + 9, dtype=dtype, device=device)
            b = other[4 : 4 + k, 4 : 4 + n]
            b.copy_(normal(rng, k, n, dtype=dtype))
            shore = torch.full((m + 9, n + 9), 5.0, dtype=dtype, device=device)
            out = shore[4 : 4 + m, 4 : 4 + n]
            rungemm.matmul(a, b, out=out)
            assert_close(out, a.double() @ b.double(), k)
            out.fill_(5.0)
            assert bool((shore == 5.0).all())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_inf_go_where_they_belong(value, rng, device) -> None:
    for dtype in FLOATS:
        for row, col in ((0, 0), (16, 21), (3, 7)):
            a, b = normal(rng, 17, 22, dtype=dtype, device=device), normal(rng, 22, 18, dtype=dtype, device=device)
            a[row, col] = value
            assert_close(rungemm.matmul(a, b), a.double() @ b.double(), 22)
            assert_close(rungemm.matmul(b.mT, a.mT), b.double().mT @ a.double().mT, 22)


def test_int8_sums_are_exact(rng, device) -> None:
    for m, n, k in ((33, 17, 65), (64, 64, 128), (1, 5, 3)):
        a, b = (torch.from_numpy(rng.integers(-128, 128, s)).to(torch.int8) for s in ((m, k), (k, n)))
        got = rungemm.matmul(a.to(device), b.to(device))
        assert got.dtype == torch.int32 and torch.equal(got.cpu().long(), a.long() @ b.long())
        batched = rungemm.bmm(a.to(device).expand(3, m, k), b.to(device).expand(3, k, n))
        assert torch.equal(batched[2].cpu().long(), a.long() @ b.long())


def test_fp8_with_scales(rng, device) -> None:
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
        a, b = (normal(rng, *s, device=device).to(kind) for s in ((32, 48), (48, 16)))
        want = a.double() @ b.double()
        got = rungemm.gemm(a, b)
        assert got.dtype == torch.bfloat16
        assert_close(got, want, 48)
        rows, cols = torch.rand(32, 1, device=device) + 0.5, torch.rand(1, 16, device=device) + 0.5
        scaled = rungemm.gemm(a, b, scale_a=rows, scale_b=cols, out_dtype=torch.float32)
        assert_close(scaled, want * rows.double() * cols.double(), 48)
        scaled = rungemm.gemm(a, b, scale_a=0.5, scale_b=torch.tensor(4.0, device=device), epilogue="relu")
        assert_close(scaled, torch.relu(2 * want), 48, steps=2)
    with pytest.raises(ValueError, match=r"scale_a is 3x1: pass one element, or 32x1"):
        rungemm.gemm(a, b, scale_a=torch.ones(3, 1, device=device))


def test_types_that_are_torchs_alone(rng, device) -> None:
    for dtype in (torch.float64, torch.complex64):
        a, b = (torch.from_numpy(rng.standard_normal(s)).to(dtype).to(device) for s in ((4, 3), (3, 5)))
        assert torch.allclose(rungemm.matmul(a, b), a @ b)
    conjugate = torch.conj(a)
    assert conjugate.is_conj() and torch.allclose(rungemm.matmul(conjugate, b), conjugate.resolve_conj() @ b)


def test_negative_bit_is_resolved(rng, device) -> None:
    z = torch.complex(normal(rng, 6, 4, device=device), normal(rng, 6, 4, device=device))
    negated = torch.conj(z).imag
    assert negated.is_neg()
    b = normal(rng, 4, 5, device=device)
    for _ in range(2):
        assert_close(rungemm.matmul(negated, b), -z.imag.double() @ b.double(), 4)
        out = poisoned(6, 5, dtype=torch.float32, device=device)
        assert_close(rungemm.matmul(negated, b, out=out), -z.imag.double() @ b.double(), 4)
    target = torch.conj(torch.zeros(6, 5, dtype=torch.complex64, device=device)).imag
    assert target.is_neg()
    assert_close(rungemm.matmul(z.real, b, out=target).resolve_neg(), z.real.double() @ b.double(), 4)


def test_precisions_of_fp32(rng, device) -> None:
    a, b = normal(rng, 40, 300, device=device), normal(rng, 300, 30, device=device)
    want = a.double() @ b.double()
    assert_close(rungemm.matmul(a, b, precision="ieee"), want, 300)
    assert_close(rungemm.matmul(a, b, precision="tf32"), want, 300, tf32=True)
    assert_close(rungemm.matmul(a, b, precision="tf32x3"), want, 300, steps=4)
    with pytest.raises(ValueError, match=r"precision 'fp19' is unknown: use one of ieee, tf32, tf32x3"):
        rungemm.matmul(a, b, precision="fp19")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: rungemm.matmul(t(2, 3), t(4, 5)), r"A is 2x3 and B is 4x5: K differs \(3 columns"),
        (lambda t: rungemm.matmul(t(2, 3), t()), r"B is a scalar"),
        (lambda t: rungemm.matmul(t(2, 3), [1.0]), r"B is a list: pass a torch.Tensor"),
        (lambda t: rungemm.matmul(t(2, 3, 4), t(5, 4, 6)), r"batches of 2 and 5 do not broadcast"),
        (lambda t: rungemm.matmul(t(2, 3), t(3, 4).half()), r"A is torch.float32 and B is torch.float16: convert one"),
        (lambda t: rungemm.bmm(t(2, 3), t(3, 4)), r"bmm wants two 3-D batches"),
        (lambda t: rungemm.addmm(t(2, 9), t(2, 3), t(3, 4)), r"C is 2x9 and A @ B 2x4: pass C with that shape"),
        (lambda t: rungemm.gemm(t(2, 3), t(3, 4), beta=1.0), r"beta is 1.0 but no C was given"),
        (lambda t: rungemm.gemm(t(2, 3), t(3, 4), alpha=t(1)), r"alpha is a Tensor: pass a Python number"),
        (lambda t: rungemm.gemm(t(2, 3), t(3, 4), bias=t(3)), r"bias is 3: a row bias has N = 4 elements"),
        (lambda t: rungemm.gemm(t(2, 3), t(3, 4), epilogue="gelo"), r"activation 'gelo' is unknown"),
        (lambda t: rungemm.gemm(t(2, 3), t(3, 5), epilogue="swiglu"), r"N is 5: a gated epilogue"),
        (lambda t: rungemm.gemm(t(2, 3), t(3, 4), out_dtype=torch.int32), r"the result would be torch.int32"),
        (lambda t: rungemm.matmul(t(2, 3), t(3, 4), out=t(3, 4)), r"out is 3x4 and the result 2x4"),
        (lambda t: rungemm.matmul(t(2, 3), t(3, 4), out=t(1, 4).expand(2, 4)), r"out has strides \(0, 1\)"),
        (lambda t: rungemm.linear(t(2, 3), t(3, 4, 5)), r"weight is 3x4x5: linear wants \(N, K\)"),
    ],
)  # fmt: skip
def test_errors_name_the_operand_and_the_remedy(call, words, device) -> None:
    with pytest.raises(ValueError, match=words):
        call(lambda *shape: torch.ones(shape, device=device))
