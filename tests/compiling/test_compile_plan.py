"""Plans become machine code in child processes; what goes wrong there is an error here, never the end of us."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap
import time

import pytest

from rungemm.compiling import CompileError, compile_launch, compile_many, compile_plan, pool
from rungemm.dtypes import FP32
from rungemm.hardware import ZOO
from rungemm.kernels import Launch, LaunchPlan, find_kernel
from rungemm.kernels.plan import Pointer
from rungemm.problem import Problem

COPY = """
    from rungemm.compat import constexpr, gl, jit

    @jit
    def copy_kernel(x, y, N: constexpr):
        at = gl.arange(0, N, gl.BlockedLayout([4], [32], [4], [0]))
        gl.store(y + at, gl.load(x + at))
"""


def plan_of(name: str, m: int = 512, n: int = 512, k: int = 512, gpu: str = "h200") -> LaunchPlan:
    kernel, problem, card = find_kernel(name), Problem.dense(m, n, k), ZOO[gpu]
    return kernel.plan(problem, kernel.default_config(problem, card), card)


def copy_launch(module: object, n: int = 512, alignment: int = 16) -> Launch:
    arguments = (("x", Pointer("A", FP32, alignment)), ("y", Pointer("D", FP32, alignment)))
    return Launch(module.copy_kernel, (1, 1, 1), arguments, (("N", n),), 4)  # type: ignore[attr-defined]


def test_resources_and_code_of_a_rung() -> None:
    (shared,) = compile_plan(plan_of("shared_tile"), 90)
    assert shared.name == "shared_tile_kernel" and shared.arch == 90 and shared.num_warps == 32
    assert shared.shared_bytes == 2 * 32 * 32 * 4, "two fp32 tiles of 32x32"
    assert 16 <= shared.registers <= 64 and shared.spill_bytes == 0 and shared.stack_bytes == 0
    assert ".target sm_90a" in shared.ptx and shared.cubin[:4] == b"\x7fELF"
    # One multiply-add for each of the 32 steps of the unrolled tile, at least.
    assert shared.sass["FFMA"] >= 32 and shared.sass["BAR.SYNC.DEFER_BLOCKING"] >= 2
    assert "NOP" not in shared.sass


@pytest.mark.parametrize(("arch", "gpu"), [(80, "a100-80"), (86, "rtx3090"), (89, "rtx4090")])
def test_other_architectures(arch: int, gpu: str) -> None:
    (naive,) = compile_plan(plan_of("naive", gpu=gpu), arch)
    assert naive.arch == arch and f".target sm_{arch}" in naive.ptx and naive.sass["FFMA"] >= 1


def test_alignment_and_constants_reach_the_compiler(write_module) -> None:
    module = write_module(COPY)
    wide, narrow = (compile_launch(copy_launch(module, alignment=a), 80) for a in (16, 4))
    assert wide.sass["LDG.E.128"] == 1 and "LDG.E.128" not in narrow.sass, "aligned pointers alone are read so"
    assert wide.key != narrow.key


def test_warm_is_read_from_disk_and_fast() -> None:
    jobs = [(plan_of("naive"), 90), (plan_of("coalesced"), 90)]
    first = compile_many(jobs)
    start = time.perf_counter()
    again = compile_many(jobs)
    elapsed = time.perf_counter() - start
    assert first == again
    assert elapsed < 0.2, f"two warm compilations took {elapsed:.3f} s"


def test_many_reports_each_job_and_keeps_going(write_module) -> None:
    module = write_module(COPY)
    good, also = copy_launch(module), copy_launch(module, 1024)
    bad = dataclasses.replace(good, constants=(("N", 500),))  # arange wants a power of two
    seen: dict[int, object] = {}
    launches = ((good,), (good, bad), (), (good, also))
    jobs = [(LaunchPlan("test", part), 80) for part in launches]
    results = compile_many(jobs, on_done=lambda i, r: seen.setdefault(i, r))
    assert [seen[i] for i in range(4)] == results
    assert isinstance(results[1], CompileError) and "power of 2" in str(results[1])
    assert results[2] == () and len(results[3]) == 2  # type: ignore[arg-type]
    assert results[0][0] == results[3][0]  # type: ignore[index]


def test_register_cap_is_kept() -> None:
    plan = plan_of("thread_tile_2d")
    capped = dataclasses.replace(plan.launches[0], max_registers=64)
    compiled = compile_launch(capped, 90)
    assert compiled.registers <= 64
    assert compiled.spill_bytes > 0 and compiled.stack_bytes > 0, "an 8x8 thread tile does not fit in 64 registers"


def test_an_error_in_the_kernel_is_one_line_with_its_place(write_module) -> None:
    module = write_module("""
        from rungemm.compat import gl, jit

        @jit
        def wrong(x):
            gl.store(x, missing_name)
    """)
    launch = Launch(module.wrong, (1, 1, 1), (("x", Pointer("D", FP32)),), (), 4)
    with pytest.raises(CompileError) as caught:
        compile_launch(launch, 90)
    assert "wrong for sm_90" in str(caught.value) and "missing_name" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_abort_is_an_error_and_the_next_compilation_works(write_module) -> None:
    # wgmma on sm_80 makes libtriton abort the process it runs in.
    module = write_module("""
        from rungemm.compat import constexpr, gl, jit, warpgroup_mma, warpgroup_mma_init, warpgroup_mma_wait

        @jit
        def aborts(x):
            SHARED: constexpr = gl.NVMMASharedLayout(128, 16, 2)
            ACC: constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
            a = gl.allocate_shared_memory(gl.float16, [64, 64], SHARED)
            acc = warpgroup_mma(a, a, gl.zeros([64, 64], gl.float32, ACC), is_async=False)
            rows = gl.arange(0, 64, gl.SliceLayout(1, ACC))[:, None]
            cols = gl.arange(0, 64, gl.SliceLayout(0, ACC))[None, :]
            gl.store(x + rows * 64 + cols, acc)
    """)
    launch = Launch(module.aborts, (1, 1, 1), (("x", Pointer("D", FP32)),), (), 4)
    with pytest.raises(CompileError) as caught:
        compile_launch(launch, 80)
    assert "ended its process" in str(caught.value) and "\n" not in str(caught.value)
    assert compile_launch(launch, 90).sass, "the same kernel compiles for sm_90, in a new child"


def test_a_compilation_that_never_ends_is_ended(write_module, monkeypatch) -> None:
    # A module that sleeps when the child imports it stands for a compiler that does not end.
    module = write_module(
        textwrap.dedent(COPY) + "\nimport os, time\nif 'TRITON_DUMP_PTXAS_LOG' in os.environ:\n    time.sleep(600)\n"
    )
    monkeypatch.setattr(pool, "TIMEOUT_S", 0.5)
    with pytest.raises(CompileError, match="took more than"):
        compile_launch(copy_launch(module), 80)


def test_source_that_changed_after_import_is_refused(write_module, tmp_path) -> None:
    module = write_module(COPY)
    changed = textwrap.dedent(COPY).replace("gl.load(x + at)", "gl.load(x + at) + 1")
    (tmp_path / f"{module.__name__}.py").write_text(changed)
    with pytest.raises(CompileError, match="changed since"):
        compile_launch(copy_launch(module), 80)


def test_requests_that_cannot_be_compiled_are_refused_first(write_module) -> None:
    launch = copy_launch(write_module(COPY))
    with pytest.raises(CompileError, match="sm_75 is not supported: use one of 80, 86, 89, 90"):
        compile_launch(launch, 75)
    with pytest.raises(CompileError, match="not the function's parameters: M on one side only"):
        compile_launch(dataclasses.replace(launch, constants=(("N", 512), ("M", 1))), 80)
    with pytest.raises(CompileError, match="the order differs from y on"):
        compile_launch(dataclasses.replace(launch, arguments=launch.arguments[::-1]), 80)


def test_a_script_s_own_kernel_compiles(tmp_path) -> None:
    script = textwrap.dedent(COPY) + textwrap.dedent("""
        from rungemm.compiling import compile_launch
        from rungemm.dtypes import FP32
        from rungemm.kernels import Launch
        from rungemm.kernels.plan import Pointer

        if __name__ == "__main__":
            arguments = (("x", Pointer("A", FP32)), ("y", Pointer("D", FP32)))
            print(compile_launch(Launch(copy_kernel, (1, 1, 1), arguments, (("N", 512),), 4), 90).name)
    """)
    path = tmp_path / "script.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "copy_kernel", done.stderr
