"""The runner with torch on the CPU and a stand-in driver: what is launched, in which order, with which memory."""

from __future__ import annotations

import dataclasses
import struct

import pytest

torch = pytest.importorskip("torch")

from launching_kernels import every_kind_launch  # noqa: E402

from rungemm.compiling import compile_plan  # noqa: E402
from rungemm.dtypes import FP32, INT32  # noqa: E402
from rungemm.gpu import prepare, run_plan, runner  # noqa: E402
from rungemm.gpu.parameters import fields_of  # noqa: E402
from rungemm.hardware import DEFAULT_GPU  # noqa: E402
from rungemm.kernels import LaunchPlan, find_kernel  # noqa: E402
from rungemm.kernels.plan import Pointer, Workspace  # noqa: E402
from rungemm.problem import Problem, ProblemError  # noqa: E402

CPU = -1  # what a CPU tensor's get_device() says


@pytest.fixture
def prepared_on_cpu(fake_cuda, monkeypatch):
    """Prepares a plan whose "device" is the CPU, launched by the stand-in."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: CPU)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(runner, "_current_stream_of", lambda: lambda device: 0x77)
    monkeypatch.setattr(runner, "_current_device_of", lambda: lambda: CPU)
    monkeypatch.setattr(runner, "_place", lambda device: torch.device("cpu"))
    monkeypatch.setattr(runner, "_functions", {})
    monkeypatch.setattr(runner, "_captured", [])

    def make(plan: LaunchPlan) -> runner.Prepared:
        return runner.Prepared(plan, CPU, compile_plan(plan, 90), fake_cuda.driver)

    return make


def test_a_rung_is_launched_with_its_operands(prepared_on_cpu, fake_cuda) -> None:
    problem, kernel = Problem.dense(70, 33, 5, alpha=2.0, beta=0.5), find_kernel("naive")
    plan = kernel.plan(problem, kernel.default_config(problem, DEFAULT_GPU), DEFAULT_GPU)
    prepared = prepared_on_cpu(plan)
    fields = fields_of(plan.launches[0])
    fake_cuda.expect([f.size for _, f in fields])
    tensors = {r: torch.empty(s) for r, s in (("A", (70, 5)), ("B", (5, 33)), ("C", (70, 33)), ("D", (70, 33)))}
    for _ in range(2):
        prepared.run(tensors)
        got = dict(zip([name for name, _ in fields], fake_cuda.parameters(), strict=True))
        for name, role in (("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")):
            assert struct.unpack("<Q", got[name])[0] == tensors[role].data_ptr()
        assert [struct.unpack("<i", got[name])[0] for name in ("M", "N", "K", "a_row")] == [70, 33, 5, 5]
        assert [struct.unpack("<f", got[name])[0] for name in ("alpha", "beta")] == [2.0, 0.5]
        tensors = {role: tensor.clone() for role, tensor in tensors.items()}
    assert fake_cuda.config[:6] == [3 * 2, 1, 1, 32 * 32, 1, 1] and fake_cuda.number("stream") == 0x77
    assert fake_cuda.count("loads") == 1 and fake_cuda.count("launches") == 2


def test_the_same_code_with_more_shared_memory_has_a_limit_of_its_own(prepared_on_cpu, fake_cuda) -> None:
    """A probe's ring of 96 KiB had the code of one of 16, and the card refused the launch."""
    problem, kernel = Problem.dense(70, 33, 5), find_kernel("naive")
    plan = kernel.plan(problem, kernel.default_config(problem, DEFAULT_GPU), DEFAULT_GPU)
    (compiled,) = compile_plan(plan, 90)
    fake_cuda.expect([f.size for _, f in fields_of(plan.launches[0])])
    for loads, room in enumerate((98304, 196608), start=1):
        runner.Prepared(plan, CPU, (dataclasses.replace(compiled, shared_bytes=room),), fake_cuda.driver)
        assert fake_cuda.count("shared_limit") == room and fake_cuda.count("loads") == loads
    runner.Prepared(plan, CPU, (dataclasses.replace(compiled, shared_bytes=98304),), fake_cuda.driver)
    assert fake_cuda.count("loads") == 2


def test_workspaces_are_made_zeroed_and_kept_as_the_plan_says(prepared_on_cpu, fake_cuda, monkeypatch) -> None:
    base = every_kind_launch()
    arguments = tuple((n, Pointer("flags", FP32, 4) if n == "x" else x) for n, x in base.arguments)
    arguments = tuple((n, Pointer("partial", FP32, 16) if n == "y" else x) for n, x in arguments)
    launch = dataclasses.replace(base, arguments=arguments)
    spaces = (Workspace("partial", FP32, 100), Workspace("flags", INT32, 8, zeroed=True, restored=True))
    prepared = prepared_on_cpu(LaunchPlan("two", (launch, launch), spaces))
    fields = [name for name, _ in fields_of(launch)]
    fake_cuda.expect([f.size for _, f in fields_of(launch)])
    a = torch.empty(1000 * 520, dtype=torch.bfloat16)
    made: list[torch.Tensor] = []
    for name in ("empty", "zeros"):
        real = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *args, _real=real, **kw: made.append(_real(*args, **kw)) or made[-1])
    pointers = set()
    for _ in range(3):
        prepared.run({"A": a})
        pointers.add(struct.unpack("<Q", fake_cuda.parameters()[fields.index("x")])[0])
    assert fake_cuda.count("launches") == 6
    flags = [tensor for tensor in made if tensor.dtype == torch.int32]
    assert len(flags) == 1 and pointers == {flags[0].data_ptr()} and not flags[0].any()
    assert len([tensor for tensor in made if tensor.dtype == torch.float32]) == 3
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    for _ in range(runner.CAPTURES):
        prepared.run({"A": a})
        pointers.add(struct.unpack("<Q", fake_cuda.parameters()[fields.index("x")])[0])
    assert len(pointers) == 1 + runner.CAPTURES, "every captured launch gets memory of its own"
    assert len([tensor for tensor in made if tensor.dtype == torch.int32]) == 1, "zeroed before any capture"
    assert not any(tensor.any() for tensor in runner._captured)
    prepared.run({"A": a})
    assert len([tensor for tensor in made if tensor.dtype == torch.int32]) == 2, "none left: zeroed in the graph"


def test_operands_elsewhere_are_refused(prepared_on_cpu) -> None:
    problem, kernel = Problem.dense(8, 8, 8), find_kernel("naive")
    plan = kernel.plan(problem, kernel.default_config(problem, DEFAULT_GPU), DEFAULT_GPU)
    operands = {role: torch.empty(8, 8) for role in "ABD"}
    with pytest.raises(ProblemError, match=r"A is on cpu: move it to a GPU, e.g. A.cuda\(\)"):
        run_plan(plan, operands)
    prepared = prepared_on_cpu(plan)
    prepared.device = 0
    with pytest.raises(ProblemError, match="A is on cpu: this plan runs on cuda:0"):
        prepared.run(operands)
    if not torch.cuda.is_available():
        with pytest.raises(ProblemError, match="no CUDA device"):
            prepare(plan)
    run_plan(LaunchPlan("empty"), operands)


def test_a_launcher_says_to_the_driver_what_run_says(prepared_on_cpu, fake_cuda) -> None:
    problem, kernel = Problem.dense(70, 33, 5, alpha=2.0, beta=0.5), find_kernel("naive")
    plan = kernel.plan(problem, kernel.default_config(problem, DEFAULT_GPU), DEFAULT_GPU)
    prepared = prepared_on_cpu(plan)
    fake_cuda.expect([f.size for _, f in fields_of(plan.launches[0])])
    addresses = {"A": 0x1000, "B": 0x2000, "C": 0x3000, "D": 0x4000}
    prepared.run_addresses(addresses)
    want = fake_cuda.parameters(), fake_cuda.config
    prepared.run_addresses(dict.fromkeys(addresses, 0x9000))
    launch = prepared.launcher(("D", "unused", "A", "B", "C"))
    launch(0x4000, 0x7777, 0x1000, 0x2000, 0x3000)
    assert (fake_cuda.parameters(), fake_cuda.config) == want and fake_cuda.number("stream") == 0x77
    with pytest.raises(ProblemError, match="the plan reads C, which was not given"):
        prepared.launcher(("A", "B", "D"))


def test_a_launcher_of_descriptors_and_of_several_launches(prepared_on_cpu, fake_cuda) -> None:
    launch = every_kind_launch()
    fields = fields_of(launch)
    names = [name for name, _ in fields]
    fake_cuda.expect([f.size for _, f in fields])
    roles = {argument.role for _, argument in launch.arguments if hasattr(argument, "role")}
    order = tuple(sorted(roles))
    space = torch.empty(1000 * 520, dtype=torch.bfloat16)
    for launches in ((launch,), (launch, launch)):
        prepared = prepared_on_cpu(LaunchPlan("kinds", launches))
        before = fake_cuda.count("launches")
        run = prepared.launcher(order)
        for shift in (0, 1024, 0):
            prepared.run_addresses(dict.fromkeys(order, space.data_ptr() + shift))
            want = fake_cuda.parameters()
            prepared.run_addresses(dict.fromkeys(order, space.data_ptr() + 4096))
            run(*[space.data_ptr() + shift] * len(order))
            assert fake_cuda.parameters() == want, names
        assert fake_cuda.count("launches") == before + 9 * len(launches)


def test_a_launcher_knows_who_else_filled_in_the_pointers(prepared_on_cpu, fake_cuda) -> None:
    """It leaves them alone only where its own last launch put the same ones there."""
    launch = every_kind_launch()
    fake_cuda.expect([f.size for _, f in fields_of(launch)])
    order = tuple(sorted({argument.role for _, argument in launch.arguments if hasattr(argument, "role")}))
    space = torch.empty(1000 * 520, dtype=torch.bfloat16)
    here = [space.data_ptr() + 1024 * place for place in range(len(order))]
    prepared = prepared_on_cpu(LaunchPlan("kinds", (launch,)))
    run, turned = prepared.launcher(order), prepared.launcher(order[::-1])
    run(*here)
    want = fake_cuda.parameters()
    others = (
        lambda: prepared.run_addresses(dict.fromkeys(order, here[0])),
        lambda: turned(*here),  # the same addresses in other roles
        lambda: run(*here[::-1]),
        lambda: run(*here),
    )
    for number, other in enumerate(others):
        other()
        assert (fake_cuda.parameters() == want) == (number == 3)
        run(*here)
        assert fake_cuda.parameters() == want, number
    with pytest.raises(ZeroDivisionError):  # what was half filled in is not taken for whole
        block = prepared._kernels[0].parameters
        block._encode, block._encoded = (lambda *_: 1 / 0), {}
        run(*[address + 4096 for address in here])
    assert block.holder is None
