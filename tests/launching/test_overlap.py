"""Programmatic dependent launch: which launches get the attribute, and that the driver is handed what it expects."""

from __future__ import annotations

import ctypes
import re

import pytest

torch = pytest.importorskip("torch")

from rungemm.compiling import compile_plan  # noqa: E402
from rungemm.compiling.sass import disassemble  # noqa: E402
from rungemm.dtypes import BF16  # noqa: E402
from rungemm.gpu import runner  # noqa: E402
from rungemm.gpu.driver import CudaDriver, LaunchAttribute  # noqa: E402
from rungemm.gpu.parameters import fields_of  # noqa: E402
from rungemm.hardware import DEFAULT_GPU  # noqa: E402
from rungemm.kernels import LaunchPlan, find_kernel  # noqa: E402
from rungemm.kernels.hopper.champion import ChampionHopper, HopperConfig  # noqa: E402
from rungemm.problem import Problem  # noqa: E402

INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
SERIALIZATION = 6  # cuda.h's CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


def plan_of(name: str, *shape: int, **more) -> LaunchPlan:
    kernel, problem = find_kernel(name), Problem.dense(*shape, **more)
    return kernel.plan(problem, kernel.default_config(problem, DEFAULT_GPU), DEFAULT_GPU)


@pytest.fixture
def attribute_of(fake_cuda, monkeypatch):
    """What a plan's launches pass to the driver: (attribute, value), (0, 0) for none."""
    monkeypatch.setattr(runner, "_functions", {})

    def ask(plan: LaunchPlan, arch: int = 90) -> list[tuple[int, int]]:
        found = []
        for launch, compiled in zip(plan.launches, compile_plan(plan, arch), strict=True):
            kernel = runner._Kernel(launch, compiled, 0, fake_cuda.driver)
            fake_cuda.expect([f.size for _, f in fields_of(launch)])
            fake_cuda.driver.launch(kernel._config_at, kernel.function, kernel.parameters.address, 0)
            given = fake_cuda.config[7:]
            assert given in ([0, 0], [1, 1])
            found.append((fake_cuda.count("attribute"), fake_cuda.count("attribute_value")))
        return found

    return ask


def test_the_attribute_is_as_long_as_cuda_has_it() -> None:
    assert ctypes.sizeof(LaunchAttribute) == 72 and LaunchAttribute.value.offset == 8


def test_champions_overlap_when_asked_on_hopper_and_nowhere_else(attribute_of, monkeypatch) -> None:
    monkeypatch.setenv("RUNGEMM_PDL", "1")
    small, split = plan_of("champion_fp32", 96, 64, 48), plan_of("champion_fp32", 64, 64, 16384)
    assert attribute_of(small) == [(SERIALIZATION, 1)]
    assert attribute_of(split) == [(SERIALIZATION, 1)] * 2
    assert attribute_of(plan_of("champion_hopper", 64, 128, 256, dtype=BF16)) == [(SERIALIZATION, 1)]
    assert attribute_of(small, 80) == attribute_of(small.serialised()) == [(0, 0)]
    assert attribute_of(plan_of("shared_tile", 64, 64, 64)) == [(0, 0)]
    monkeypatch.delenv("RUNGEMM_PDL")
    assert attribute_of(split) == [(0, 0)] * 2


def test_an_old_driver_is_not_asked(fake_cuda, attribute_of, monkeypatch) -> None:
    fake_cuda.set("driver_version", 12020)
    old = CudaDriver(fake_cuda._library._name)
    assert fake_cuda.driver.overlaps and not old.overlaps
    monkeypatch.setenv("RUNGEMM_PDL", "1")
    monkeypatch.setattr(fake_cuda, "driver", old)
    assert attribute_of(plan_of("champion_fp32", 96, 64, 48)) == [(0, 0)]


def test_the_machine_code_waits_on_hopper_before_it_touches_global_memory() -> None:
    reaches = ("LDG", "STG", "LDGSTS", "UTMALDG", "UTMASTG", "ATOM", "ATOMG", "RED")
    fp32 = [plan_of("champion_fp32", *shape) for shape in ((96, 64, 48), (64, 64, 16384), (301, 299, 303))]
    turns = HopperConfig(tile_m=64, tile_n=128, tile_k=64, schedule="turns", num_warps=4)
    problem = Problem.dense(300, 400, 520, dtype=BF16)
    hopper = [plan_of("champion_hopper", 64, 64, 16384, dtype=BF16), ChampionHopper().plan(problem, turns, DEFAULT_GPU)]
    ways = [*zip(fp32, (1, 1, 3), strict=True), (hopper[0], 2), (hopper[1], 3)]  # strips are ways of their own
    for plan, waits in ways:
        for number, compiled in enumerate(compile_plan(plan, 90)):
            opcodes = [match[1].split(".")[0] for match in INSTRUCTION.finditer(disassemble(compiled.cubin))]
            first = min(i for i, opcode in enumerate(opcodes) if opcode in reaches)
            assert "ACQBULK" in opcodes[:first], compiled.name
            assert opcodes.count("ACQBULK") == (waits if number == 0 else 1), compiled.name  # one for each partition
    for plan in fp32:
        assert all("griddepcontrol" not in compiled.ptx for compiled in compile_plan(plan, 80))


def test_turning_it_off_compiles_nothing_anew() -> None:
    plan = plan_of("champion_fp32", 64, 64, 16384)
    again = compile_plan(plan.serialised(), 90)
    assert [c.cubin for c in compile_plan(plan, 90)] == [c.cubin for c in again]
    assert [launch.pdl for launch in plan.launches] == [True, True]
    assert [launch.pdl for launch in plan.serialised().launches] == [False, False]
