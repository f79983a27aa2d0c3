"""``rungemm ladder`` end to end in the simulator: records, exit codes, files, and what people see."""

from __future__ import annotations

import numpy as np
import pytest

from rungemm.kernels import LADDER
from rungemm.ladder import Record

NAMES = [kernel.name for kernel in LADDER]
FP32_FIRST = NAMES[: NAMES.index("vectorised") + 1]
FOUR = ("naive", "coalesced", "shared_tile", "thread_tile_1d")


def test_a_ragged_shape_with_scalars(rungemm, seed):
    arguments = ["--shape", "33x18x9", "--alpha", "1.5", "--beta", "-0.5", "--seed", seed, "--json"]
    ran = rungemm("ladder", "--rungs", "naive-vectorised", *arguments)
    assert ran.code == 0, ran.err
    records = ran.json
    assert [record["name"] for record in records] == FP32_FIRST
    for record in records:
        assert record["correct"] is True, record
        assert 0 <= record["error"] <= record["tolerance"] < 1e-2
        assert (record["m"], record["n"], record["k"]) == (33, 18, 9)
        assert (record["alpha"], record["beta"], record["seed"]) == (1.5, -0.5, seed)
        assert record["ran_on"] == "simulator" and record["speed"] is None


def test_the_counts_are_the_formulas(rungemm):
    """At a shape that every tile divides, K = 128: 2K, 2K, K/16 and K/32 loads, then 2K and 9K/8 shared loads."""
    ran = rungemm("ladder", "--rungs", "naive-thread_tile_1d", "--shape", "64x64x64", "--gpu", "a6000", "--json")
    assert ran.code == 0, ran.err
    counts = {record["name"]: record["counts"] for record in ran.json}
    assert [counts[name]["loads_per_c"] for name in FOUR] == [128, 128, 4, 2]
    assert [counts[name]["shared_loads_per_c"] for name in FOUR] == [0, 0, 128, 72]
    assert all(each["fmas"] == 64**3 for each in counts.values())
    for record in ran.json:
        resources = record["resources"]
        assert resources["card"] == "a6000" and resources["max_warps_per_sm"] == 48
        assert 0 < resources["registers"] <= 255 and 0 < resources["occupancy"] <= 1
        assert record["bounds"]["bound"] in ("compute", "memory")
    # One thread for one element: 1024 threads fill an SM of 1536 once, 32 of 48 warps.
    assert ran.json[0]["resources"]["warps_per_sm"] == 32


def test_what_people_see(rungemm):
    from rungemm.compat import TRITON_VERSION

    ran = rungemm("ladder", "--rungs", "2,3", "--shape", "32x32x32", "--seed", 7)
    assert ran.code == 0
    for words in (
        f"Compiled by Triton {TRITON_VERSION} for sm_90.",
        "SIMULATOR", "seed 7", "32x32x32", *NAMES[1:3], "registers", "one element of C", "wavefronts",
        "2 of 2 rungs agree with float64",
    ):  # fmt: skip
        assert words in ran.out
    assert max(len(line) for line in ran.out.splitlines()) <= 100
    assert all(line == line.rstrip() for line in ran.out.splitlines())


def test_the_table_fits_80_columns(rungemm, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = rungemm("ladder", "--rungs", "shared_tile", "--shape", "32x32x32")
    assert max(len(line) for line in ran.out.splitlines()) <= 80
    assert "…" not in ran.out


def test_list(rungemm):
    listed = rungemm("ladder", "--list", "--json").json
    assert [rung["name"] for rung in listed] == NAMES
    assert all(rung["idea"] and rung["state"] for rung in listed)
    assert all(rung["state"] == "ready" for rung in listed if rung["name"] in FP32_FIRST)
    assert [rung["position"] for rung in listed] == list(range(1, len(listed) + 1))
    text = rungemm("ladder", "--list", "--rungs", "1-2").out
    assert "naive" in text and "coalesced" in text and "shared_tile" not in text


def test_own_matrices_with_nan_and_inf(rungemm, rng, tmp_path):
    a, b = rng.standard_normal((35, 20), dtype=np.float32), rng.standard_normal((20, 33), dtype=np.float32)
    a[3, 4], b[5, 6], b[7, 8] = np.nan, np.inf, -np.inf
    np.save(tmp_path / "a.npy", np.asfortranarray(a))
    np.save(tmp_path / "b.npy", b)
    ran = rungemm(
        "ladder", "--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy", "--rungs", "naive,vectorised", "--json"
    )
    assert ran.code == 0, ran.err
    for record in ran.json:
        assert record["correct"] is True and record["seed"] is None and record["layout"] == "TN"
        assert (record["m"], record["n"], record["k"]) == (35, 33, 20)


def test_cast_and_c_from_files(rungemm, rng, tmp_path):
    for name, shape in (("a", (4, 5)), ("b", (5, 6)), ("c", (4, 6))):
        np.save(tmp_path / f"{name}.npy", rng.standard_normal(shape))
    files = [item for name in "abc" for item in (f"--{name}", tmp_path / f"{name}.npy")]
    ran = rungemm("ladder", *files, "--cast", "--beta", "2", "--rungs", "naive", "--json")
    assert ran.code == 0 and ran.json[0]["correct"] is True and ran.json[0]["beta"] == 2


def test_a_card_that_cannot_run_a_rung_is_no_failure(rungemm):
    """A rung for sm_90 on an sm_89 card: not run, with the predicate's reason."""
    hopper = next(kernel.name for kernel in LADDER if kernel.min_arch == 90)
    ran = rungemm("ladder", "--rungs", hopper, "--shape", "32", "--gpu", "rtx4090", "--json")
    assert ran.code == 0
    (record,) = ran.json
    assert record["correct"] is None and "sm_90" in record["why"]
    state = rungemm("ladder", "--list", "--rungs", hopper, "--gpu", "rtx4090", "--json").json[0]["state"]
    assert state == record["why"]


@pytest.mark.parametrize("shape", ["0x5x5", "5x0x5", "5x5x0", "1x1x1"])
def test_empty_and_single(rungemm, shape):
    ran = rungemm("ladder", "--shape", shape, "--rungs", "naive,shared_tile", "--json")
    assert ran.code == 0, ran.err
    assert all(record["correct"] is True for record in ran.json)


def test_a_wrong_rung_is_exit_code_1(rungemm, monkeypatch):
    from broken_kernels import ForgetsLastK, MasksNothing

    monkeypatch.setattr("rungemm.cli.ladder.chosen_rungs", lambda _: [ForgetsLastK(), MasksNothing()])
    ran = rungemm("ladder", "--shape", "33x32x8", "--json")
    assert ran.code == 1
    assert [record["correct"] for record in ran.json] == [False, False]
    forgets, masks = ran.json
    assert "over" in forgets["why"] and forgets["error"] > forgets["tolerance"]
    assert "broken_kernels.py" in masks["why"] or "common.py" in masks["why"], masks["why"]
    text = rungemm("ladder", "--shape", "33x32x8")
    assert text.code == 1 and "WRONG" in text.out and "2 of 2 rungs are WRONG" in text.out


def test_the_same_seed_is_the_same_run(rungemm):
    runs = [rungemm("ladder", "--rungs", "naive", "--shape", "32", "--seed", 5, "--json").json[0] for _ in range(2)]
    assert runs[0]["error"] == runs[1]["error"] and runs[0]["counts"] == runs[1]["counts"]


def test_a_long_simulation_is_announced(rungemm, monkeypatch):
    monkeypatch.setattr("rungemm.cli.ladder.SLOW_FROM", 0.0)
    monkeypatch.setattr("rungemm.ladder.estimate.QUICK_WORK", 0)
    ran = rungemm("ladder", "--rungs", "vectorised", "--shape", "32", "--json")
    assert ran.code == 0 and "about 1 minute;" in ran.err and ran.json


def test_dtype_sets_every_rung_that_arithmetic(rungemm):
    hopper = next(kernel.name for kernel in LADDER if kernel.min_arch == 90)
    ran = rungemm("ladder", "--rungs", f"naive,{hopper}", "--shape", "32", "--dtype", "bf16", "--json")
    assert ran.code == 0, ran.err
    naive, tensor = ran.json
    assert naive["correct"] is None and "bf16" in naive["why"]
    assert tensor["correct"] is True and tensor["dtype"] == "bf16"


@pytest.mark.parametrize(("width", "timed"), [(80, False), (80, True), (100, False), (120, True)])
def test_the_table_of_all_rungs_fits_the_terminal(width, timed):
    """Every cell at its widest: nothing is cut, on a plain terminal and on wide ones."""
    import io

    from rich.console import Console

    from rungemm.cli.ladder_view import table
    from rungemm.ladder.record import Bounds, Counts, Resources, Speed

    records = []
    for kernel in LADDER:
        record = Record(kernel.name, 1, kernel.family, "", "", None, correct=True, dtype="fp32", precision="tf32x3")
        record.resources = Resources("h200", 255, 8, 229_376, 1024, 2, 64, 64, 1.0, "threads", 1, 1, 1, 1.0)
        record.counts = Counts("the whole problem", 1, *[1] * 7, 8192.4, 8192.4, 98765.4, 1234.5, 1234.5)
        record.bounds = Bounds(1365.3, 206.1, "compute", 989.4, 1365.3, 989.4, 989.4)
        record.speed = Speed(1234.5, 1234.5, 1.234, 1.2, 1.3, 0.987, 20) if timed else None
        records.append(record)
    console = Console(width=width, file=io.StringIO())
    console.print(table(records, console))
    text = console.file.getvalue()
    assert "…" not in text and max(len(line) for line in text.splitlines()) <= width
    assert text.count("\n") == len(records) + 2


def a_record(correct: bool | None, spill_bytes: int = 0) -> Record:
    from rungemm.ladder.record import Resources

    record = Record("mma_warp_specialised", 17, "tensor", "i", "e", None, correct=correct)
    record.resources = Resources("h200", 168, spill_bytes, 0, 1024, 2, 64, 64, 1.0, "threads", 1, 1, 1, 1.0)
    return record


def test_the_mark_of_spills_has_a_legend_only_where_it_stands(monkeypatch, capsys):
    from rungemm.cli.ladder import _close

    monkeypatch.setenv("COLUMNS", "80")
    _close([a_record(True, 8)], ("late", 0))
    text = capsys.readouterr().out
    assert "168!" in text and "! spills" in text
    _close([a_record(True)], ("late", 0))
    assert "!" not in capsys.readouterr().out


def test_rungs_that_did_not_run_agree_with_nothing():
    from rungemm.cli.ladder_view import summary

    ran, left = a_record(True), a_record(None)
    assert summary([ran, ran], timed=False) == "2 of 2 rungs agree with float64; nothing was timed."
    assert summary([ran, left], timed=True) == "1 of 1 rungs that ran agree with float64; 1 not run."
    assert summary([left, left], timed=True).startswith("Nothing ran: 2 rungs not run")


def test_the_longest_name_is_parted_from_its_verdict():
    from rungemm.cli.ladder_view import paragraph

    assert "17 mma_warp_specialised correct" in paragraph(a_record(True), 80).plain


def test_what_becomes_of_numbers_is_said(rungemm, tmp_path):
    """Beyond fp32, NaN, Inf and a C that nobody gave: a line each on stderr, and no warning of NumPy's."""
    a = np.ones((4, 5))
    a[0, 0], a[1, 1], a[2, 2] = 1e300, np.nan, np.inf
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", np.ones((5, 6)))
    files = ["--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy"]
    ran = rungemm("ladder", *files, "--cast", "--beta", "1", "--rungs", "naive", "--seed", 3)
    assert ran.code == 0 and "your A and B, random C, seed 3" in ran.out
    assert [line.split(":")[0] for line in ran.err.splitlines()] == ["A", "C is random, seed 3", "A holds 1 NaN, 2 Inf"]
    assert "A: 1 number is beyond fp32's 3.4e38 and cast to Inf" in ran.err


def test_check_says_none_where_a_rung_took_no_case(rungemm, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    hopper = next(kernel.name for kernel in LADDER if kernel.min_arch == 90)
    ran = rungemm("check", "--quick", "--rungs", hopper, "--gpu", "rtx4090")
    assert ran.code == 0 and f"none {hopper}" in ran.out and "ok " not in ran.out and "Nothing was checked" in ran.out
    assert max(len(line) for line in ran.out.splitlines()) <= 80


def test_a_failure_of_a_random_schedule_says_how_to_replay_it(rungemm, monkeypatch, seed):
    """Once as a fault of the simulator, once as a wrong product; the seed is the one given, or the one drawn."""
    from broken_kernels import ForgetsLastK, WaitsForNothing

    monkeypatch.setattr("rungemm.cli.ladder.chosen_rungs", lambda _: [WaitsForNothing(), ForgetsLastK()])
    arguments = ("ladder", "--shape", "32x32x8", "--schedule", "random", "--seed", seed)
    waits, forgets = rungemm(*arguments, "--json").json
    assert waits["correct"] is False and "read-before-arrival" in waits["why"]
    for record in (waits, forgets):
        assert f"random, seed {seed}]" in record["why"], record["why"]
    text = rungemm(*arguments)
    assert text.code == 1 and f"Repeat with --schedule random --seed {seed}." in text.out
    assert f"random schedule, seed {seed}" in text.out
    drawn = rungemm("ladder", "--shape", "32x32x8", "--schedule", "random", "--json").json
    assert f"random, seed {drawn[0]['seed']}]" in drawn[0]["why"]
    late = rungemm("ladder", "--shape", "32x32x8", "--json").json
    assert "read-before-arrival" in late[0]["why"] and "seed" not in late[0]["why"]


def test_a_schedule_chooses_when_copies_complete(rungemm, monkeypatch, seed):
    from rungemm.sim import simulate

    asked = []

    def watched(plan, operands, **options):
        asked.append((options["schedule"], options["seed"]))
        return simulate(plan, operands, **options)

    monkeypatch.setattr("rungemm.sim.simulate", watched)
    runs = [
        rungemm("ladder", "--rungs", "cp_async", "--shape", "32x32x40", "--seed", seed, "--json", *extra).json[0]
        for extra in ((), ("--schedule", "random"), ("--schedule", "EAGER"))
    ]
    assert asked == [("late", seed), ("random", seed), ("eager", seed)]
    assert all(run["correct"] for run in runs)
    assert runs[0]["counts"] == runs[1]["counts"] == runs[2]["counts"]


def test_check_under_a_random_schedule(rungemm, monkeypatch, seed):
    from broken_kernels import WaitsForNothing

    monkeypatch.setattr("rungemm.cli.check.chosen_rungs", lambda _: [WaitsForNothing()])
    ran = rungemm("check", "--quick", "--schedule", "random", "--seed", seed)
    said = " ".join(ran.out.split())
    assert ran.code == 1 and f"Repeat with --schedule random --seed {seed}" in said
    assert "random schedule" in said and f"schedule random, seed {seed}]" in said
    assert "Repeat with --seed" in rungemm("check", "--quick", "--seed", seed).out


@pytest.mark.parametrize("command", ["ladder", "check", "explain"])
def test_help_tells_of_schedules(rungemm, command):
    said = " ".join(rungemm(command, "--help").out.split())
    for words in ("--schedule", "random", "replays", "--seed"):
        assert words in said
