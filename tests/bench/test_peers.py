"""Optional peers: refused with the package's name where it is not installed, and called as their own pages say."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rungemm.bench.contenders import UserCallable, contender_named  # noqa: E402
from rungemm.bench.data import make_sets  # noqa: E402
from rungemm.bench.device import HostDevice  # noqa: E402
from rungemm.bench.interleaved import StopRule  # noqa: E402
from rungemm.bench.measurement import Settings, measure  # noqa: E402
from rungemm.bench.peers import CutlassOperators  # noqa: E402
from rungemm.hardware import ZOO  # noqa: E402
from rungemm.inputs import InputError  # noqa: E402
from rungemm.problem import Problem  # noqa: E402

H200 = ZOO["h200"]


def module(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    for key, value in contents.items():
        setattr(made, key, value)
    monkeypatch.setitem(sys.modules, name, made)
    return made


@pytest.mark.parametrize(("name", "package"), [("quack", "quack-kernels"), ("cutlass", "nvidia-cutlass-operators")])
def test_a_peer_that_is_not_installed_names_its_package(name: str, package: str, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=f"pip install {package}"):
        contender_named(name, H200)


def test_quack_is_called_with_its_output(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def gemm(A: Any, B: Any, out: Any = None, bias: Any = None, alpha: float = 1.0) -> Any:
        assert bias is None
        return torch.mm(A, B, out=out)

    module(monkeypatch, "quack")
    module(monkeypatch, "quack.gemm_interface", gemm=gemm)
    quack = contender_named("quack", H200)
    assert isinstance(quack, UserCallable)
    assert lane_of(quack).failure is None


class Operator:
    """Multiplies, unless it is the one that does not compile; counts its runs."""

    def __init__(self, name: str, compiles: bool = True) -> None:
        self.metadata = types.SimpleNamespace(operator_name=name)
        self.compiles, self.runs = compiles, 0

    def compile(self, arguments: Any) -> str:
        if not self.compiles:
            raise RuntimeError("no such tile")
        return f"{self.metadata.operator_name} compiled"

    def run(self, arguments: Any, *, compiled_artifact: str, stream: Any, assume_supported_args: bool) -> None:
        assert compiled_artifact == f"{self.metadata.operator_name} compiled" and assume_supported_args
        self.runs += 1
        torch.mm(arguments.A, arguments.B, out=arguments.out)


def lane_of(contender: Any) -> Any:
    settings = Settings(rule=StopRule(3, 4, 1.0), warm_up_s=0.02, host_time=False)
    device = HostDevice(1 << 10)
    problem = Problem.dense(20, 24, 16)
    result = measure(problem, [contender], H200, reference=None, settings=settings, device=device)
    return result.lanes[contender.name]


def test_cutlass_takes_its_fastest_operator(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    offered = [Operator("slow"), Operator("broken", compiles=False), Operator("fast")]
    asked = []

    def get_operators(arguments: Any, target_sm: str) -> list[Operator]:
        asked.append(target_sm)
        return offered

    def arguments(a: Any, b: Any, out: Any, accumulator_type: Any) -> Any:
        assert accumulator_type is torch.float32
        return types.SimpleNamespace(A=a, B=b, out=out)

    module(monkeypatch, "cutlass")
    module(monkeypatch, "cutlass.operators", GemmArguments=arguments, get_operators=get_operators)
    cutlass = contender_named("cutlass", H200)
    assert isinstance(cutlass, CutlassOperators)

    def choose(ways: Any, problem: Problem) -> list[float]:
        operands = {**make_sets(problem, 1, device="cpu")[0], "D": torch.empty(20, 24)}
        found = []
        for way in ways:
            before = offered[2].runs
            try:
                way(operands)()
            except RuntimeError:
                found.append(float("inf"))
                continue
            found.append(1e-3 if offered[2].runs > before else 2e-3)
        return found

    cutlass.choose = choose
    lane = lane_of(cutlass)
    assert lane.failure is None and lane.checked.ok and asked == ["90"]
    assert lane.record == {"config": {"operator": "fast", "of": 3}}
    offered.clear()
    cutlass._chosen.clear()
    with pytest.raises(ValueError, match="have none for 20x24x16"):  # no contender is left
        lane_of(cutlass)
