"""One rung under Triton's concurrency sanitizer: launched through Triton's own launcher, which hands it its scratch.

Used by ``tools/consan.py --rungs``, one process a launch: a report of the sanitizer traps the kernel and takes the
process's CUDA context with it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from rungemm.dtypes import FP32
from rungemm.hardware import Gpu, find_gpu
from rungemm.kernels import LADDER, Kernel, find_kernel
from rungemm.kernels.plan import Descriptor, Launch, LaunchPlan, Scalar
from rungemm.ladder.pose import Posed, Refused, Task, pose
from rungemm.problem import Problem

__all__ = ["CASES", "case_of", "jobs_of", "main"]

SEED = 20261130
FEW_SMS = 2
"""Persistent rungs are planned for a card this small, so that one program walks several tiles at a small shape."""

RAGGED = ((133, 69, 45), (136, 72, 40))
"""Whatever the tile divides, these do not; the second is for rungs whose copies want rows of 16 bytes."""


CASES = ("ragged", "ring", "ring_bf16")
"""Edges that no tile fits; round all stages along K and over several tiles; the same in bf16 for rungs that take it."""


@dataclass(frozen=True)
class Case:
    """A shape for one rung, and what its operands are multiplied as: ``None`` for the first that the rung takes."""

    name: str
    shape: tuple[int, int, int]
    arithmetic: str | None = None


@functools.cache
def _card() -> Gpu:
    return dataclasses.replace(find_gpu("h200"), sms=FEW_SMS)


def _posed(kernel: Kernel[Any], case: Case) -> tuple[Task, Posed | Refused]:
    task = Task.random(*case.shape, alpha=1.5, beta=-0.5, seed=SEED, arithmetic=case.arithmetic)
    return task, pose(kernel, task, _card())


def case_of(kernel: Kernel[Any], name: str) -> Case | None:
    """One of CASES at a shape that the rung takes, or ``None`` where it takes none."""
    if name == "ragged":
        takes = (Case(name, shape) for shape in RAGGED)
        return next((case for case in takes if isinstance(_posed(kernel, case)[1], Posed)), None)
    case = Case(name, (264, 264, 264), "bf16" if name == "ring_bf16" else None)
    for _ in range(4):  # the default config may change with the shape: until the shape suits its own config
        posed = _posed(kernel, case)[1]
        if isinstance(posed, Refused):
            return None
        if case.arithmetic and posed.problem.a.dtype in kernel.dtypes[:1]:
            return None  # what the case without it is already
        wanted = _ring_shape(posed.config)
        if all(have >= need for have, need in zip(case.shape, wanted, strict=True)):
            return case
        larger = tuple(max(pair) for pair in zip(case.shape, wanted, strict=True))
        case = dataclasses.replace(case, shape=larger)
    return None


def _ring_shape(config: Any) -> tuple[int, int, int]:
    """More than one tile along M and N, and (stages + 2) K steps and a ragged one."""
    steps = max(getattr(config, "stages", 1) + 2, 4)
    return (
        getattr(config, "tile_m", 32) + 8,
        getattr(config, "tile_n", 32) + 8,
        steps * getattr(config, "tile_k", 32) + 8,
    )


def jobs_of(names: list[str]) -> list[tuple[str, str]]:
    """(rung, case) to run: every rung if none is named, each in every case that it takes.

    Raises:
        ValueError: a rung is unknown, or takes neither of the first two cases.
    """
    jobs = []
    for kernel in [find_kernel(name) for name in names] or LADDER:
        for case in CASES:
            if case_of(kernel, case) is not None:
                jobs.append((kernel.name, case))
            elif case != "ring_bf16":
                raise ValueError(f"{kernel.name} takes no shape of the case {case}: give tools/consan_rungs.py one")
    return jobs


class _Shape(list):  # type: ignore[type-arg]
    """A list that Triton's launcher can look up its kernels by."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


def launch(plan: LaunchPlan, tensors: dict[str, Any]) -> None:
    """Launch a plan through ``function[grid](...)``."""
    import torch

    for space in plan.workspaces:
        make = torch.zeros if space.zeroed else torch.empty
        tensors[space.name] = make(space.elements, dtype=getattr(torch, space.dtype.torch), device="cuda")
    for each in plan.launches:
        values = [_value(argument, tensors) for _, argument in each.arguments]
        constants = {name: _Shape(value) if isinstance(value, list) else value for name, value in each.constants}
        each.function[each.grid](*values, **constants, **_options(each))
        torch.cuda.synchronize()


def _options(each: Launch) -> dict[str, Any]:
    options: dict[str, Any] = {"num_warps": each.num_warps, "enable_fp_fusion": True}
    if each.max_registers is not None:
        options["maxnreg"] = each.max_registers
    return options


def _value(argument: Any, tensors: dict[str, Any]) -> Any:
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    if isinstance(argument, Scalar):
        return argument.value
    base = tensors[argument.role]
    if isinstance(argument, Descriptor):
        extra = {"round_f32_to_tf32": True} if argument.round_to_tf32 and _takes_rounding(TensorDescriptor) else {}
        lists = (list(argument.shape), list(argument.strides), list(argument.block))
        return TensorDescriptor(base, *lists, argument.layout, **extra)
    return base


def _takes_rounding(descriptor: Any) -> bool:
    return any(field.name == "round_f32_to_tf32" for field in dataclasses.fields(descriptor))


def _to_card(array: np.ndarray, problem_dtype: Any) -> Any:
    """A NumPy matrix on the card; torch knows bf16 but not NumPy's, so the bits travel."""
    import torch

    bits = {1: np.uint8, 2: np.int16, 4: np.int32}[array.itemsize]
    return torch.from_numpy(np.ascontiguousarray(array).view(bits).copy()).view(problem_dtype).cuda()


def _from_card(tensor: Any, dtype: np.dtype) -> np.ndarray:
    import torch

    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.cpu().view(bits).numpy().view(dtype)


def on_card(posed: Posed, task: Task) -> dict[str, Any]:
    """Run it, compare with float64; the sanitizer's own report ends the process instead."""
    import torch
    import triton
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from rungemm.sim.numeric import round_tf32
    from rungemm.verify import verify

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    problem: Problem = posed.problem
    operands = task.operands(problem.a.dtype)
    if problem.a.dtype == FP32 and problem.precision == "tf32" and not _takes_rounding(TensorDescriptor):
        # Our own launcher's descriptors round; this launcher's cannot, so here the operands come rounded.
        for role in "AB":
            operands[role] = round_tf32(operands[role])
    matrices = {"A": problem.a, "B": problem.b, "C": problem.c, "D": problem.d}
    tensors = {
        role: _to_card(array, getattr(torch, matrices[role].dtype.torch))  # type: ignore[union-attr]
        for role, array in operands.items()
    }
    launch(posed.plan, tensors)
    operands["D"] = _from_card(tensors["D"], operands["D"].dtype)
    verdict = verify(problem, operands)
    return {"outcome": "clean" if verdict.correct else "wrong", "error": verdict.error, "words": verdict.why}


def compile_only(posed: Posed) -> dict[str, Any]:
    """Whether the sanitizer's pass takes the rung at all; needs no card."""
    from rungemm.compat import GluonASTSource, GPUTarget, triton
    from rungemm.compiling.request import request_of, resolved

    scratch = 0
    for each in posed.plan.launches:
        request = request_of(each, 90)
        source = GluonASTSource(
            each.function,
            dict(request.signature),
            {(index,): resolved(value) for index, value in request.constexprs},
            {(index,): [["tt.divisibility", 16]] for index in request.attrs},
        )
        options = {**dict(request.options), "instrumentation_mode": "consan"}
        kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        scratch += kernel.metadata.global_scratch_size
    return {"outcome": "compiles", "error": None, "words": f"{scratch} bytes of scratch a program"}


def main(name: str, case: str, compiling: bool) -> None:
    """The child's work: prints one line of JSON."""
    kernel = find_kernel(name)
    chosen = case_of(kernel, case)
    assert chosen is not None, f"{name} takes no shape of the case {case}"
    task, posed = _posed(kernel, chosen)
    assert isinstance(posed, Posed), posed
    known = {"shape": chosen.shape, "config": posed.config.to_dict(), "dtype": posed.problem.a.dtype.name}
    print("ABOUT " + json.dumps(known), flush=True)
    print("RESULT " + json.dumps(compile_only(posed) if compiling else on_card(posed, task)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["--compile"])
