"""Reading ncu's CSV, in both of its forms, and joining it with the simulator's totals."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "counters_ncu.py"
LOADS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
MATRICES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum"
COPIES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum"
ALL = "memory_l1_wavefronts_shared"
LOADS_AT_L1 = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
STORES_AT_L1 = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
STORES = "smsp__inst_executed_op_shared_st.sum"
LOAD_REQUESTS, MATRIX_REQUESTS = "smsp__inst_executed_op_shared_ld.sum", "smsp__inst_executed_op_ldsm.sum"
TENSOR = "sm__inst_executed_pipe_tensor_op_hmma.sum"
LOAD_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
STORE_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("counters_ncu", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["counters_ncu"] = module
    sys.path.insert(0, str(SCRIPT.parent))
    spec.loader.exec_module(module)
    return module


REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"

COMMON = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
          "Grid Size", "Device", "CC"]  # fmt: skip


def table(*rows: list[str]) -> str:
    return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)


def launched(number: str, kernel: str, *cells: str) -> list[str]:
    return [number, "4242", "python3", "127.0.0.1", kernel, "1", "7", "(128, 1, 1)", "(8, 1, 1)", "0", "9.0", *cells]


RAW = (
    "==PROF== Connected to process 4242 (/usr/bin/python3.12)\n"
    '==PROF== Profiling "naive_kernel": 0%....50%....100% - 3 passes\n'
    "==PROF== Disconnected from process 4242\n"
) + table(
    [*COMMON, REQUESTS, "launch__registers_per_thread", CONFLICTS],
    [*[""] * len(COMMON), "", "register/thread", ""],
    launched("0", "naive_kernel", "8,388,608", "28", "0"),
    launched("1", "split_kernel(float *, int)", "1,000", "40", "24"),
    launched("2", "add_kernel", "500", "16", "0"),
)

DETAILS = table(
    [*COMMON, "Section Name", "Metric Name", "Metric Unit", "Metric Value"],
    launched("0", "naive_kernel", "Command line profiler metrics", REQUESTS, "", "8388608"),
    launched("0", "naive_kernel", "Command line profiler metrics", CONFLICTS, "", "n/a"),
)


def test_the_raw_page(script) -> None:
    launches = script.parse_ncu_csv(RAW)
    assert [name for name, _ in launches] == ["naive_kernel", "split_kernel", "add_kernel"]
    assert launches[0][1] == {REQUESTS: 8388608, "launch__registers_per_thread": 28, CONFLICTS: 0}


def test_the_details_page(script) -> None:
    assert script.parse_ncu_csv(DETAILS) == [("naive_kernel", {REQUESTS: 8388608})]


def test_launches_of_a_case_are_added_but_registers_are_not(script) -> None:
    found = script.assign(
        script.parse_ncu_csv(RAW), [("naive", ["naive_kernel"]), ("split_k", ["split_kernel", "add_kernel"])]
    )
    assert found["split_k"] == {REQUESTS: 1500, "launch__registers_per_thread": 40, CONFLICTS: 24}


def test_launches_out_of_order_are_refused(script) -> None:
    launches = script.parse_ncu_csv(RAW)
    with pytest.raises(ValueError, match="where split_kernel was due"):
        script.assign(launches, [("split_k", ["split_kernel"])])
    with pytest.raises(ValueError, match="2 launches more"):
        script.assign(launches, [("naive", ["naive_kernel"])])
    with pytest.raises(ValueError, match="nothing more"):
        script.assign([], [("naive", ["naive_kernel"])])


def test_no_table_passes_on_ncus_complaint(script) -> None:
    with pytest.raises(ValueError, match="ERR_NVGPUCTRPERM"):
        script.parse_ncu_csv("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - no permission\n")


def named(rows) -> dict:
    return {row["counter"]: row for row in rows}


def test_records_say_equal_or_how_far_off(script) -> None:
    metrics = {REQUESTS: 1000.0, LOADS: 70.0, MATRICES: 30.0, COPIES: 0.0, ALL: 160.0, LOADS_AT_L1: 107.0,
               STORES_AT_L1: 60.0, LOAD_CONFLICTS: 30.0, STORE_CONFLICTS: 0.0}  # fmt: skip
    again = {**metrics, LOAD_CONFLICTS: 32.0}
    totals = {
        "global_load_requests": 1000, "shared_load_wavefronts": 100, "shared_load_conflicts": 20,
        "shared_store_wavefronts": 61, "shared_store_conflicts": 0, "bank_conflicts": 20, "shared_wavefronts": 161,
    }  # fmt: skip
    rows = named(script.records({"naive": "8x8x8"}, [{"naive": metrics}, {"naive": again}], {"naive": totals}))
    assert rows["global_load_requests"]["why"] == rows["shared_load_wavefronts"]["why"] == "equal"
    conflicts = rows["shared_load_conflicts"]
    assert (conflicts["simulated"], conflicts["measured"], conflicts["measured_again"]) == (20, 30, [32])
    assert conflicts["why"].startswith("measured +10 (+50.000%); again: +12: contention: counted by instruction")
    assert "the 100 passes that were simulated; L1 counts 7 more" in conflicts["why"]
    assert rows["shared_store_wavefronts"]["measured"] == 60
    assert rows["shared_store_wavefronts"]["why"].endswith("unexplained")
    assert rows["bank_conflicts"]["metric"] == f"{LOAD_CONFLICTS} + {STORE_CONFLICTS}"
    assert rows["shared_wavefronts"]["measured"] == 160 and rows["shared_wavefronts"]["why"].endswith("unexplained")
    first, *_ = script.records({"naive": "8x8x8"}, [{"naive": metrics}], {"naive": "not simulated: no greenlet"})
    assert first["simulated"] is None and "greenlet" in first["why"]


@pytest.mark.parametrize(("at_l1", "by_instruction"), [(100.0, 100.0), (130.0, 101.0)])
def test_conflicts_are_contention_only_if_l1_has_them_and_the_instructions_do_not(
    script, at_l1: float, by_instruction: float
) -> None:
    metrics = {LOADS: by_instruction, MATRICES: 0.0, LOADS_AT_L1: at_l1, LOAD_CONFLICTS: 130.0}
    totals = {"shared_load_wavefronts": 100, "shared_load_conflicts": 100}
    rows = named(script.records({"x": "8x8x8"}, [{"x": metrics}], {"x": totals}))
    assert rows["shared_load_conflicts"]["why"].endswith("unexplained")


def test_what_ncu_counts_besides_is_added_from_the_code(script) -> None:
    from fractions import Fraction

    from counters_code import Code

    code = Code(((3, 128), (0, 64)), Fraction(3, 4))
    metrics = {TENSOR: 384.0 + 40, STORES: 10.0, LOAD_REQUESTS: 130.0, MATRIX_REQUESTS: 0.0, ALL: 207.0, LOADS: 100.0,
               MATRICES: 0.0, COPIES: 0.0, "smsp__inst_executed_op_ldgsts.sum": 40.0}  # fmt: skip
    totals = {"mma_instructions": 0, "wgmma_instructions": 10, "shared_store_requests": 15, "stmatrix_requests": 5,
              "shared_load_requests": 100, "wgmma_shared_bytes": 128 * 32, "shared_wavefronts": 175,
              "shared_load_wavefronts": 100, "shared_store_wavefronts": 75}  # fmt: skip

    def found(**changed: float):
        return named(script.records({"x": "8"}, [{"x": metrics | changed}], {"x": totals}, {"x": code}))

    meant = {"mma_instructions": 424, "shared_store_requests": 10, "shared_load_requests": 130,
             "shared_wavefronts": 207, "shared_store_wavefronts": 107}  # fmt: skip
    rows = found()
    for counter, value in meant.items():
        assert rows[counter]["by_ncus_definition"] == rows[counter]["measured"] == value
        assert rows[counter]["simulated"] == totals[counter]
        assert rows[counter]["why"].startswith("equal by ncu's definition: "), counter
    assert "3 HFMA2.MMA in the code, which move constants, in each of 128 warps" in rows["mma_instructions"]["why"]
    # It is no excuse: one more, and the difference stays.
    for metric, counter in ((TENSOR, "mma_instructions"), (STORES, "shared_store_requests"), (ALL, "shared_wavefronts"),
                            (LOAD_REQUESTS, "shared_load_requests")):  # fmt: skip
        assert found(**{metric: metrics[metric] + 1})[counter]["why"].endswith("unexplained"), counter


def test_instructions_of_another_purpose_are_read_from_the_text(script) -> None:
    from fractions import Fraction

    from counters_code import idle_loads_each, moves

    text = """
        /*0810*/              @!PT LDS RZ, [RZ] ;
        /*0820*/              @!PT LDS RZ, [RZ] ;
        /*0830*/              @!PT LDS RZ, [RZ] ;
        /*0840*/                   LDGSTS.E.BYPASS.128 [R8], desc[UR14][R20.64] ;
        /*0850*/                   HFMA2.MMA R3, -RZ, RZ, 0, 0 ;
        /*0860*/              @!P0 LDGSTS.E [R8+0x10], desc[UR14][R20.64] ;
        /*0870*/                   LDS R4, [R5] ;
        /*0880*/              @!PT LDS RZ, [RZ] ;
        /*0890*/                   LDGSTS.E.BYPASS.128 [R8], desc[UR14][R20.64] ;
    """
    assert moves(text) == 1
    assert idle_loads_each(text) == [Fraction(3, 2), Fraction(1)]


def test_copies_that_a_guard_switches_off_and_idle_loads_outside_loops(script) -> None:
    from fractions import Fraction

    from counters_code import Code

    kind = "LDGSTS.E.BYPASS.LTC128B.128"
    executed = "smsp__inst_executed_op_ldgsts.sum"
    metrics = {COPIES: 120.0 + 32 * 10, ALL: 170.0 + 32 * 10, LOAD_REQUESTS: 100.0 + 6 + 14, MATRIX_REQUESTS: 0.0,
               executed: 40.0}  # fmt: skip
    totals = {"shared_copy_wavefronts": 120, "shared_wavefronts": 170, "shared_load_requests": 100,
              "cp_async_instructions": 30, "async_copy_bytes": 1}  # fmt: skip
    names = ("shared_copy_wavefronts", "shared_wavefronts", "shared_load_requests")

    def found(code: Code, **changed: float):
        return named(script.records({"x": "8"}, [{"x": metrics | changed}], {"x": totals}, {"x": code}))

    code = Code((), None, frozenset({kind}), (6, 12, Fraction(1, 2)))
    for name in names:
        assert found(code)[name]["why"].startswith("equal by ncu's definition: "), name
        for metric in (COPIES, ALL, LOAD_REQUESTS, executed):
            touched = metric == executed or {COPIES: 0, ALL: 1, LOAD_REQUESTS: 2}[metric] == names.index(name)
            assert found(code, **{metric: metrics[metric] + 1})[name]["why"].startswith("equal") != touched
    for other in (frozenset({"LDGSTS.E.BYPASS.128"}), frozenset({kind, "LDGSTS.E"}), frozenset()):
        assert not found(Code((), None, other))["shared_copy_wavefronts"]["why"].startswith("equal")


def test_loops_and_guards_are_read_from_the_text(script) -> None:
    from fractions import Fraction

    from counters_code import _apart, guarded_copies, in_loops

    text = """
        /*0800*/               @P1 BRA `(.L_x_1) ;
        /*0810*/              @!PT LDS RZ, [RZ] ;
        /*0820*/                   LDGSTS.E.BYPASS.128 [R8], desc[UR14][R20.64] ;
        /*0830*/                   LDGSTS.E.BYPASS.128 [R8], desc[UR14][R20.64], !P0 ;
.L_x_0:
        /*0840*/              @!PT LDS RZ, [RZ] ;
        /*0850*/              @!P0 LDGSTS.E [R8+0x10], desc[UR14][R20.64] ;
        /*0860*/               @P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0870*/                   LDS R4, [R5] ;
    """
    inside, outside = in_loops(text)
    assert inside.count("LDGSTS") == 1 and outside.count("LDGSTS") == 2
    assert guarded_copies(text) == {"LDGSTS.E"}
    assert _apart([text, "/*0000*/ EXIT ;"], [8, 4]) == (8, 16, Fraction(1))
    assert _apart([text, text], [8, 4]) is None
    assert _apart([outside], [8]) is None


def test_a_sum_with_a_part_missing_is_no_measurement(script) -> None:
    totals = {"shared_load_wavefronts": 3, "bank_conflicts": 0}
    rows = script.records({"x": "8x8x8"}, [{"x": {LOADS: 1.0, LOAD_CONFLICTS: 0.0}}], {"x": totals})
    assert {"shared_load_wavefronts", "bank_conflicts"}.isdisjoint(row["counter"] for row in rows)


def test_totals_are_kept_until_the_kernel_changes(script, tmp_path) -> None:
    from counters_join import Known

    case = next(iter(script.cases((64, 64, 64), ["naive"], None, script.DEFAULT_GPU)))
    other = next(iter(script.cases((64, 64, 32), ["naive"], None, script.DEFAULT_GPU)))
    known = Known(tmp_path / "known.json")
    key = known.key("naive", "64x64x64", case.plan, 90)
    known.add(key, {"fmas": 1})
    assert Known(tmp_path / "known.json").entries == {key: {"fmas": 1}}
    assert key == known.key("naive", "64x64x64", case.plan, 90)
    assert key != known.key("naive", "64x64x64", other.plan, 90)


def test_a_rung_is_launched_with_settings_of_its_own(script) -> None:
    names = ["cp_async@tile_n=128+thread_n=8", "cp_async", "naive"]
    found = list(script.cases((64, 64, 64), names, None, script.DEFAULT_GPU))
    assert [case.name for case in found] == ["naive", "cp_async@tile_n=128+thread_n=8", "cp_async"]
    assert [dict(case.plan.launches[0].constants)["TILE_N"] for case in found[1:]] == [128, 256]
    with pytest.raises(ValueError, match="no field warps"):
        list(script.cases((64, 64, 64), ["cp_async@warps=4"], None, script.DEFAULT_GPU))


def test_probes_are_chosen_by_how_their_names_begin(script) -> None:
    chosen = [case.name for case in script.cases((64, 64, 64), ["-"], "ldgsts_4", script.DEFAULT_GPU)]
    assert chosen == ["probe:ldgsts_4_dense", "probe:ldgsts_4_apart"]


def test_every_probe_compiles_to_the_instructions_that_the_simulator_counts(script) -> None:
    import counter_probes
    import numpy as np

    from rungemm.sim import simulate

    from .sass_lines import instructions_by_line

    everything = list(script.cases((64, 64, 64), ["-"], "", script.DEFAULT_GPU))
    assert len(everything) > 20
    chosen = np.random.default_rng().permutation(len(everything))[:5]
    for case in (everything[int(i)] for i in chosen):
        operands = script.probe_operands(case)
        operands["D"] = operands["D"][: case.out[0] // counter_probes.PROGRAMS]
        report = simulate(counter_probes.alone(case.plan), operands)
        counted = report.observer.instruction_totals()
        machine: dict[str, int] = {}
        for names in instructions_by_line(case.plan).values():
            for name, n in names.items():
                machine[name] = machine.get(name, 0) + n
        machine.pop("BAR", None)
        warps = case.plan.launches[0].num_warps
        assert counted == {name: warps * n for name, n in machine.items()}, case.name


FAKE_NCU = """#!{python}
import sys
arguments = sys.argv[1:]
if "--query-metrics" in arguments:
    print("l1tex__t_requests_pipe_lsu_mem_global_op_ld   Counter   requests")
    sys.exit()
value = lambda name: arguments[arguments.index(name) + 1]
metrics = value("--metrics").split(",")
assert "--launch" in arguments and value("-k") == "regex:^(add_up_kernel|naive_kernel|split_k_kernel)$", arguments
cell = lambda *cells: ",".join('"' + c + '"' for c in cells) + "\\n"
with open(value("--log-file"), "w") as log:
    log.write("==PROF== Connected\\n" + cell("ID", "Kernel Name", *metrics) + cell("", "", *("" for _ in metrics)))
    for number, kernel in enumerate(["naive_kernel", "split_k_kernel", "add_up_kernel"]):
        log.write(cell(str(number), kernel, *(str(100 * number + i) for i in range(len(metrics)))))
"""


def test_the_whole_way_with_a_stand_in_for_ncu(script, tmp_path, monkeypatch) -> None:
    """What is asked of ncu, and the file that comes out; the stand-in makes its numbers up."""
    import json
    import os

    ncu = tmp_path / "ncu"
    ncu.write_text(FAKE_NCU.replace("{python}", sys.executable))
    ncu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    out = tmp_path / "counters.json"
    arguments = ["--shape", "64x32x512", "--kernels", "naive,split_k", "--gpu", "h200", "--workers", "1"]
    monkeypatch.setattr(sys, "argv", ["counters_ncu.py", *arguments, "--out", str(out)])
    script.main()
    raw = json.loads((tmp_path / "counters.raw.json").read_text())
    assert len(raw["runs"]) == 2 and all(list(run) == ["naive", "split_k"] for run in raw["runs"])
    assert not any("pipe_tensor" in metric for metric in raw["runs"][0]["naive"])  # not in the stand-in's list
    assert "memory_l1_wavefronts_shared" in raw["runs"][0]["naive"]
    assert "memory_l1_wavefronts_shared" not in raw["runs"][1]["naive"]
    rows = json.loads(out.read_text())
    naive = {row["counter"]: row for row in rows if row["kernel"] == "naive"}
    assert naive["fmas"]["simulated"] == 64 * 32 * 512
    assert naive["fmas"]["shape"] == "64x32x512"
    first = naive["global_load_requests"]
    assert first["measured"] == raw["runs"][0]["naive"][first["metric"]] == 0
    split = {row["counter"]: row for row in rows if row["kernel"] == "split_k"}
    assert split["global_load_requests"]["measured"] == 100 + 200
