"""``rungemm explain`` and ``rungemm doctor``, and the program as a process of its own."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from dataclasses import replace

import pytest


def test_explain_puts_the_costs_on_the_lines_that_cause_them(rungemm):
    ran = rungemm("explain", "shared_tile", "--shape", "64x64x64", "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    lines = found["lines"]
    assert found["record"]["correct"] is True and found["below"]["name"] == "coalesced"
    by_text = {
        words: next(line for line in lines if words in line["text"])
        for words in ("gl.fma", "load_tile(a", "a_tile.store", "store_tile(")
    }
    assert by_text["gl.fma"]["counts"]["fmas"] == 64**3
    # Every element of A is loaded once by each of the two columns of blocks; rows of 32 floats are 4 sectors.
    loads, stores = by_text["load_tile(a"]["counts"], by_text["a_tile.store"]["counts"]
    assert loads["global_load_elements"] == 2 * 64 * 64
    assert loads["global_load_sectors"] == 2 * 64 * 64 * 4 // 32
    assert stores["shared_store_elements"] == loads["global_load_elements"]
    # C goes out once, although the store itself stands in a helper.
    assert by_text["store_tile("]["counts"]["global_store_elements"] == 64 * 64
    totals = {name: sum(line["counts"].get(name, 0) for line in lines) for name in ("fmas", "global_load_requests")}
    assert totals["fmas"] == found["record"]["counts"]["fmas"]
    assert totals["global_load_requests"] == found["record"]["counts"]["global_load_requests"]
    assert found["paper"] == {"global_loads": 4.0, "shared_loads": 128.0}
    loads = next(change for change in found["changes"] if change["what"] == "global loads for one element of C")
    assert (loads["before"], loads["after"]) == (128.0, 4.0)


def test_explain_for_people(rungemm):
    ran = rungemm("explain", "5", "--shape", "128x128x16", "--gpu", "a6000")
    assert ran.code == 0, ran.err
    for words in (
        "RTX A6000",
        "Against thread_tile_1d",
        "on paper",
        "held by",
        "thread_tile_2d.py",
        "source",
        "sectors",
    ):
        assert words in ran.out
    assert "2-way bank conflict" in ran.out and "want different words of bank" in ran.out


def test_figures_are_exact_and_rows_do_not_wrap(monkeypatch, capsys):
    """Two rungs with the longest name there is, a whole number of six digits and one of three places."""
    from rich.console import Console

    from rungemm.cli.explain_view import _changes, exact
    from rungemm.ladder.explained import _FIGURES, Change, Explained
    from rungemm.ladder.record import Record

    record = Record("mma_warp_specialised", 17, "tensor", "i", "e", None)
    figures = [Change(what, 147_668, 196_608.25) for what, _ in _FIGURES]
    found = Explained(record, record, figures, None, {}, 0.0, 0.0, 1.0, "", [])
    Console(width=80).print(_changes(found))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(_FIGURES) + 1 and max(map(len, lines)) <= 80 and "…" not in "".join(lines)
    assert all("147,668" in line for line in lines[1:])
    assert [exact(value) for value in (None, 0, 153_600, 2.625)] == ["-", "0", "153,600", "2.62"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["1-3"], "explain takes one rung, and '1-3' names 3 rungs: give one, such as naive"),
        (["all"], "explain takes one rung"),
        (["1,2,3"], "explain takes one rung"),
        (["coalexced"], "did you mean 'coalesced'?"),
        (["naive", "--shape", "0x1x1"], "nothing to explain"),
        (["naive", "--dtype", "int8"], "'int8'"),
    ],
)
def test_explain_refuses(refused, arguments, says):
    assert says in refused("explain", *arguments)


def test_doctor_tries_things(rungemm):
    ran = rungemm("doctor", "--json")
    assert ran.code == 0, ran.out
    found = {finding["name"]: finding for finding in ran.json}
    for name in ("python", "numpy", "triton", "compiling", "simulator"):
        assert found[name]["state"] == "ok", found[name]
    assert "registers" in found["compiling"]["found"]
    assert found["gpu"]["state"] == "absent"
    text = rungemm("doctor").out
    assert all(name in text for name in found)


def test_explain_advises_nothing_that_it_does_not_take(refused):
    line = refused("explain", "nope")
    assert "unknown" in line and "1-3" not in line and "or all" not in line


@pytest.mark.parametrize("usable", [None, False, True])
def test_doctor_tells_who_needs_torch(monkeypatch, usable):
    """The library does, with a card or without one."""
    import importlib.util
    from types import SimpleNamespace

    from rungemm.cli.doctor import _torch

    spec = None if usable is None else object()
    fake = SimpleNamespace(
        __version__="9.9", version=SimpleNamespace(cuda="13"), cuda=SimpleNamespace(is_available=lambda: usable)
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    monkeypatch.setattr(importlib, "import_module", lambda _: fake)
    finding = _torch(None)
    assert finding.state == ("absent" if usable is None else "ok")
    for words in ("rungemm.matmul, linear, patch", ".pt files", "launch"):
        assert words in finding.able
    assert "nothing else" not in finding.able and ("CPU" in finding.able) is not bool(usable)


def test_doctor_tells_what_is_broken(rungemm, monkeypatch):
    def fails(*_args, **_kwargs):
        raise RuntimeError("ptxas is gone")

    monkeypatch.setattr("rungemm.compiling.compile_plan", fails)
    ran = rungemm("doctor", "--json")
    broken = [finding for finding in ran.json if finding["state"] == "broken"]
    assert ran.code == 1 and [finding["name"] for finding in broken] == ["compiling"]
    assert "ptxas is gone" in broken[0]["found"] and broken[0]["fix"]


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rungemm", *arguments],
        capture_output=True, text=True, timeout=120, check=False, env=os.environ | environment,
    )  # fmt: skip


def test_as_a_process():
    ran = process("ladder", "--list", "--json")
    assert ran.returncode == 0 and ran.stderr == ""
    assert json.loads(ran.stdout)[0]["name"] == "naive"
    ran = process("ladder", "--rungs", "nope")
    assert ran.returncode == 2 and ran.stdout == "" and ran.stderr.count("\n") == 1 and "Traceback" not in ran.stderr
    assert process("--version").stdout.startswith("rungemm ")
    assert process().stdout.count("ladder") >= 1


@pytest.mark.parametrize("command", [[], ["ladder"], ["check"], ["explain"], ["doctor"], ["bench"], ["tune"]])
def test_help_with_an_example(rungemm, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = rungemm(*command, "--help")
    assert ran.code == 0 and "Usage: rungemm" in ran.out
    assert max(len(line) for line in ran.out.splitlines()) <= 80
    if command:
        assert f"Example: rungemm {command[0]}" in ran.out and "--json" in ran.out


def test_help_is_quick_and_loads_nothing_heavy():
    script = (
        "import sys; from rungemm.cli import main\n"
        "code = main(['--help'])\n"
        "heavy = {'numpy', 'triton', 'torch', 'ml_dtypes'} & set(sys.modules)\n"
        "sys.exit(code or (f'loaded {heavy}' if heavy else 0))"
    )
    best = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert ran.returncode == 0, ran.stderr
    # 0.3 s on an idle machine. Processor time, since others may keep the machine busy; the bound leaves room for them.
    assert best < 0.8


def test_a_reader_that_goes_away_is_no_traceback():
    script = (
        f"{sys.executable} -m rungemm ladder --list --json | {sys.executable} -c 'import sys; sys.stdin.readline()'"
    )
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert ran.stderr == ""


def test_explain_a_product(rungemm):
    ran = rungemm("explain", "333x777x555", "--gpu", "h200", "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    assert (found["m"], found["n"], found["k"], found["dtype"], found["layout"]) == (333, 777, 555, "fp32", "NN")
    assert found["chosen"] in found["options"] and found["why"]
    assert {option["name"] for option in found["options"]} >= {"cublas", "shared_tile"}
    rejected = {each["name"]: each["why"] for each in found["rejected"]}
    assert "tf32" in rejected["wgmma_shared"]
    # Limits are told of the chosen kernel, or where that is cuBLAS, of the fastest of ours.
    ours = [option for option in found["options"] if option["config"] is not None]
    limited = found["chosen"] if found["chosen"]["config"] is not None else ours[0]
    assert found["limits_of"] == limited["name"] and found["resources"]["blocks_per_sm"] >= 1
    assert sum(part["seconds"] for part in found["time"]) == pytest.approx(limited["seconds"])
    assert found["bounds"]["bound"] == "compute"
    text = rungemm("explain", "16x4096x4096", "--dtype", "bf16", "--layout", "NT", "--gpu", "a100-80").out
    for words in ("16x4096x4096 bf16 NT", "chosen", "rejected", "memory-bound", "FLOP a byte", "tiles of", "waves",
                  "registers", "Where its", "at DRAM's rate"):  # fmt: skip
        assert words in text
    # Rungs with one reason share a line.
    assert re.search(r"rejected naive, coalesced, [\w\s,]+: take fp32; A is bf16", text)
    assert re.search(r"wgmma_shared, [\w\s,]+: need[\w\s]+sm_90", text)


def test_explain_takes_one_number_beyond_the_rungs_for_a_cube(rungemm):
    """So that the advice of a refused shape, "or one for a cube", is true; a rung's number stays a rung."""
    from rungemm.kernels import LADDER

    beyond = len(LADDER) + 1
    for text, extents in ((str(beyond), [beyond] * 3), (" 4096 ", [4096] * 3), ("64,32,16", [64, 32, 16])):
        found = rungemm("explain", text, "--gpu", "h200", "--json").json
        assert [found[name] for name in ("batch", "m", "n", "k")] == [1, *extents]
    found = rungemm("explain", "1", "--shape", "32x32x16", "--gpu", "h200", "--json").json
    assert found["record"]["name"] == LADDER[0].name


@pytest.mark.parametrize("dtype", ["fp8e4m3", "fp8e5m2", "INT8"])
def test_explain_a_product_of_a_type_that_no_rung_is_set(rungemm, dtype):
    from rungemm.ops.explain import explain_dispatch

    arguments = ("explain", "512x256x128", "--dtype", dtype, "--layout", "NT", "--gpu", "h200")
    found = rungemm(*arguments, "--json").json
    decision = explain_dispatch((512, 256, 128), gpu="h200", dtype=dtype.lower(), layout="NT")
    assert found["dtype"] == dtype.lower() and found["chosen"]["name"] == decision.chosen.name
    assert f"512x256x128 {dtype.lower()} NT" in rungemm(*arguments).out


def test_explain_tells_no_time_of_a_rung_that_was_never_timed(rungemm):
    """The model's word on a rung on the way up is contradicted by the ladder's measurements; a champion's is not."""
    from rungemm.kernels import LADDER
    from rungemm.ops.model import CHAMPIONS

    arguments = ("explain", "4096x4096x4096", "--dtype", "bf16", "--gpu", "h200")
    options = {option["name"]: option for option in rungemm(*arguments, "--json").json["options"]}
    untimed = [name for name in options if name not in (*CHAMPIONS, "cublas")]
    assert {"ping_pong", "subtiled_epilogue"} <= set(untimed)
    assert list(options)[-len(untimed) :] == untimed == [k.name for k in LADDER if k.name in untimed]
    for name, option in options.items():
        assert (option["source"] == "not timed") is (option["seconds"] is None) is (name in untimed)
    text = " ".join(rungemm(*arguments).out.split())
    told = f"not called {', '.join(untimed)}: rungs on the way up, unless measured to be the fastest"
    assert told in text and "us and more" not in text
    assert "also champion_mma" in text and "champion_hopper, 2" in text


def _with(**changes):
    """The dispatcher, with its decision's options changed: ``changes(decision)`` gives what to replace."""
    from rungemm.ops.explain import explain_dispatch

    def decided(*arguments, **options):
        decision = explain_dispatch(*arguments, **options)
        return replace(decision, **{name: change(decision) for name, change in changes.items()})

    return decided


def test_explain_where_only_rungs_on_the_way_up_take_the_product(rungemm, monkeypatch):
    """Their limits are told, with no time; the one that was measured, or has to run, has its time."""
    from rungemm.cli import explain_choice

    def cublas(decision):
        return next(option for option in decision.options if not option.is_ours)

    def rung(decision, **fields):
        return replace(next(option for option in decision.options if option.name == "ping_pong"), **fields)

    asked = ("explain", "1024x1024x1024", "--dtype", "bf16", "--gpu", "h200")
    monkeypatch.setattr(
        explain_choice, "explain_dispatch", _with(chosen=cublas, options=lambda d: (cublas(d), rung(d)))
    )
    found = rungemm(*asked, "--json").json
    assert found["limits_of"] == "ping_pong" and found["time"] == [] and found["resources"]["registers"] > 0
    text = rungemm(*asked).out
    assert "ping_pong, not called" in text and "registers" in text
    assert "speed" not in text and "Where its" not in text
    monkeypatch.setattr(
        explain_choice, "explain_dispatch", _with(chosen=cublas, options=lambda d: (cublas(d), rung(d, measured=True)))
    )
    found = rungemm(*asked, "--json").json
    assert found["options"][1]["seconds"] > 0 and found["time"]
    assert "speed" in rungemm(*asked).out and "not called" not in rungemm(*asked).out


def test_explain_tells_the_measured_time_of_cublas_beside_the_models(rungemm):
    from rungemm.dtypes import BF16
    from rungemm.hardware import ZOO
    from rungemm.ops.table import table_of
    from rungemm.problem import Problem

    table = table_of(ZOO["h200"])
    kind = ("bf16", "bf16", "ieee", "NN", True, False)
    measured = [(m, n, k, entry) for known, (batch, m, n, k), entry in table.entries()
                if batch == 1 and known == kind and entry.cublas_us > 0]  # fmt: skip
    m, n, k, entry = measured[0]
    asked = ("explain", f"{m}x{n}x{k}", "--dtype", "bf16", "--gpu", "h200")
    assert rungemm(*asked, "--json").json["cublas_measured_seconds"] == pytest.approx(1e-6 * entry.cublas_us)
    text = " ".join(rungemm(*asked).out.split())
    assert re.search(r"cublas, [\d.]+ [mu]s by model \([\d.]+ [mu]s measured\)", text)
    asked = ("explain", "331x773x557", "--dtype", "bf16", "--gpu", "h200")
    assert table.find(Problem.dense(331, 773, 557, dtype=BF16)) is None, "take a product that was not measured"
    assert rungemm(*asked, "--json").json["cublas_measured_seconds"] is None
    assert "s measured)" not in rungemm(*asked).out


def test_explain_a_batch(rungemm):
    """What the library's own function says of the batch, with limits that count all of its products."""
    from rungemm.ops.explain import explain_dispatch

    chosen_of_ours = 0
    for batch, m, n, k, layout in ((512, 64, 64, 64, "NN"), (6, 300, 200, 100, "NT"), (3, 1024, 1024, 1024, "TN")):
        arguments = ("explain", f"{batch}x{m}x{n}x{k}", "--dtype", "bf16", "--layout", layout, "--gpu", "h200")
        ran = rungemm(*arguments, "--json")
        assert ran.code == 0, ran.err
        found = ran.json
        decision = explain_dispatch((batch, m, n, k), gpu="h200", dtype="bf16", layout=layout)
        assert [found[name] for name in ("batch", "m", "n", "k", "layout")] == [batch, m, n, k, layout]
        assert (found["chosen"]["name"], found["why"]) == (decision.chosen.name, decision.why)
        assert {each["name"] for each in found["options"]} == {option.name for option in decision.options}
        told = [each["seconds"] for each in found["options"] if each["seconds"] is not None]
        assert told == sorted(told) and len(told) >= 2
        rejected = {each["name"]: each["why"] for each in found["rejected"]}
        assert f"batch is {batch}: loop over the batch" in rejected["champion_hopper"]
        # A batch does all its products' arithmetic: as many operations a byte as one of them.
        assert found["bounds"]["intensity"] == pytest.approx(2 * m * n * k / (2 * (m * k + k * n + m * n)))
        assert sum(part["seconds"] for part in found["time"]) == pytest.approx(
            next(each["seconds"] for each in found["options"] if each["name"] == found["limits_of"])
        )
        assert found["resources"]["programs"] >= min(batch, 132)
        text = rungemm(*arguments).out
        for words in (f"{batch}x {m}x{n}x{k} bf16 {layout}", f"chosen {decision.chosen.name}", "rejected",
                      f"in each of {batch} products", "Where its"):  # fmt: skip
            assert words in text
        chosen_of_ours += decision.chosen.is_ours
    assert chosen_of_ours, "no batch here is ours any more: take one that is"


def test_explain_tells_of_a_call_that_the_host_decides(rungemm, monkeypatch):
    """cuBLAS's in a CUDA graph, ours outside one: both are told."""
    from rungemm.cli import explain_choice
    from rungemm.ops.explain import explain_dispatch

    def decided(*arguments, **options):
        decision = explain_dispatch(*arguments, **options)
        theirs = next(option for option in decision.options if not option.is_ours)
        ours = next(option for option in decision.options if option.is_ours)
        return replace(decision, chosen=theirs, eager=ours)

    asked = ("explain", "64x64x64", "--dtype", "bf16", "--gpu", "h200")
    with monkeypatch.context() as patched:
        patched.setattr(explain_choice, "explain_dispatch", decided)
        found = rungemm(*asked, "--json").json
        assert found["chosen"]["name"] == "cublas" and found["eager"]["config"] is not None
        assert f"eager {found['eager']['name']}: outside a CUDA graph" in rungemm(*asked).out
    assert rungemm("explain", "4096x4096x4096", "--gpu", "h200", "--json").json["eager"] is None


def test_explain_a_batch_of_one_is_the_product(rungemm):
    one, product = (rungemm("explain", shape, "--gpu", "h200", "--json").json for shape in ("1x64x64x64", "64x64x64"))
    assert one == product and product["batch"] == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["5x-1x3"], "N is -1"),
        (["64x64"], "MxNxK"),
        (["axbxc"], "shape 'axbxc' is not MxNxK"),
        (["1e3x10x10"], "shape '1e3x10x10' is not MxNxK"),
        (["mxnxk"], "shape 'mxnxk' is not MxNxK"),
        (["64,64"], "shape '64,64' is not MxNxK"),
        (["8x-1x3x4"], "M is -1"),
        (["2x3x4x5x6"], "three whole numbers as in 512x256x128, or four as in 8x512x256x128"),
        (["8x64x64xb"], "'8x64x64xb' is not MxNxK or BATCHxMxNxK"),
        (["4294967296x8x8x8"], "the batch is 4294967296"),
        (["8x8x8x8", "--seed", "1"], "leave them out"),
        (["naive", "--shape", "2x8x8x8"], "MxNxK"),
        (["8x8x8", "--layout", "XX"], "'XX'"),
        (["8x8x8", "--shape", "8"], "leave them out"),
        (["naive", "--layout", "NN"], "leave it out"),
        (["8x8x8", "--dtype", "fp12"], "'fp12'"),
    ],
)
def test_explain_refuses_what_does_not_go_together(refused, arguments, says):
    assert says in refused("explain", *arguments)


def test_explain_under_a_random_schedule(rungemm, monkeypatch, seed):
    """The simulator is told, and the counts do not depend on it."""
    from rungemm.sim import simulate

    asked = []

    def watched(plan, operands, **options):
        asked.append((options["schedule"], options["seed"]))
        return simulate(plan, operands, **options)

    monkeypatch.setattr("rungemm.sim.simulate", watched)
    arguments = ("explain", "tma", "--shape", "64x64x64", "--seed", seed, "--json")
    late, drawn = (rungemm(*arguments, *extra).json for extra in ((), ("--schedule", "random")))
    assert set(asked) == {("late", seed), ("random", seed)}
    assert late["lines"] == drawn["lines"]
