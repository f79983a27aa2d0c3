"""The dispatcher: every kernel is asked, measurements go before the model, and the reasons can be read. No torch."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rungemm.bench.store import SCHEMA, VERSION
from rungemm.dtypes import BF16, FP16, FP32
from rungemm.hardware import find_gpu
from rungemm.kernels import find_kernel
from rungemm.ops import generate, neighbours
from rungemm.ops.batches import kernels_for
from rungemm.ops.dispatch import ELEMENTWISE, HOST_SAVED_S, decide, without_epilogue
from rungemm.ops.explain import describe, explain_dispatch
from rungemm.ops.model import cublas_seconds
from rungemm.ops.neighbours import UNKNOWN_GAIN, expectation
from rungemm.ops.table import Entry, Table, TableError, class_of, load_table, table_of
from rungemm.problem import LAYOUTS, Epilogue, Matrix, Problem

H200 = find_gpu("h200")
BIG = Problem.dense(4096, 4096, 4096, dtype=BF16, layout="NT")
KNOWN = find_kernel("champion_hopper").default_config(BIG, H200)
CONFIG = KNOWN.to_dict()


def table(problem: Problem, ratio: float, kernel: str = "champion_hopper", config=CONFIG) -> Table:
    shape = (problem.batch, problem.m, problem.n, problem.k)
    return Table([(class_of(problem), shape, Entry(kernel, config, ratio, "measured.json"))])


def test_importing_rungemm_loads_neither_torch_nor_triton() -> None:
    code = "import rungemm, sys; rungemm.Epilogue('row'); dir(rungemm); print({'torch', 'triton'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_explaining_needs_no_torch() -> None:
    code = "import rungemm, sys; rungemm.explain_dispatch((64, 64, 64), gpu='h200'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_kernel_is_asked() -> None:
    for problem in (BIG, Problem.dense(64, 64, 64), Problem.dense(5, 7, 9, dtype=FP16, batch=3)):
        decision = decide(problem, H200, table=Table())
        named = [option.name for option in decision.options if option.is_ours] + [name for name, _ in decision.rejected]
        assert sorted(named) == sorted(kernel.name for kernel in kernels_for(problem))
        for name, reason in decision.rejected:
            kernel = find_kernel(name)
            said = [kernel.supports(problem, config, H200) for config in kernel.configs(problem, H200)]
            assert reason in said
        for option in decision.options:
            if option.is_ours:
                assert find_kernel(option.name).supports(option.problem, option.config, H200) is None


def test_a_measurement_decides_both_ways() -> None:
    ahead, behind = decide(BIG, H200, table=table(BIG, 1.04)), decide(BIG, H200, table=table(BIG, 0.97))
    assert ahead.chosen.name == "champion_hopper" and ahead.chosen.source == "table"
    assert ahead.chosen.config.to_dict() == CONFIG and "4.0% faster" in ahead.why
    assert behind.chosen.name == "cublas" and "3.0% slower" in behind.why
    assert ahead.chosen.seconds == pytest.approx(cublas_seconds(BIG, H200) / 1.04)


def test_a_rung_that_was_measured_fastest_is_chosen() -> None:
    problem = Problem.dense(512, 512, 512)
    config = find_kernel("vectorised").default_config(problem, H200).to_dict()
    assert decide(problem, H200, table=table(problem, 1.1, "vectorised", config)).chosen.name == "vectorised"
    assert decide(problem, H200, table=table(problem, 1.1, "vectorised", config), all_rungs=False).chosen.name == (
        "vectorised"
    )


def test_neighbours_set_the_model_right_and_strangers_do_not() -> None:
    good, bad = table(BIG, 1.2), table(BIG, 0.8)
    near = Problem.dense(5000, 4096, 4096, dtype=BF16, layout="NT")
    chosen = decide(near, H200, table=good).chosen
    assert chosen.name == "champion_hopper" and not chosen.measured and "4096x4096x4096" in chosen.source
    assert decide(near, H200, table=bad).chosen.name == "cublas"
    kernel = find_kernel("champion_hopper")
    of_good, of_bad = (expectation(kernel, near, H200, known) for known in (good, bad))
    assert of_good.correction - of_bad.correction == pytest.approx(math.log(1.2 / 0.8), rel=0.3)
    far = expectation(kernel, Problem.dense(64, 64, 64, dtype=BF16, layout="NT"), H200, good)
    assert abs(far.correction) < abs(of_good.correction) / 3 and far.needed > 2 * of_good.needed
    for other in (Problem.dense(4096, 4096, 4096, precision="tf32", layout="NT"),
                  Problem.dense(4097, 4095, 4093, dtype=BF16, layout="NT")):  # fmt: skip
        nothing = expectation(kernel, other, H200, good)
        assert (nothing.correction, nothing.needed, nothing.nearest) == (0.0, UNKNOWN_GAIN, None)
    fp16 = expectation(kernel, Problem.dense(5000, 4096, 4096, dtype=FP16, layout="NT"), H200, good)
    assert fp16 == of_good, "multiplied alike"


def test_what_neighbours_say_is_their_errors_weighted_by_nearness(rng) -> None:
    """The arrays of the library against the sums written out, one measured problem after the other."""
    kernel, shipped = find_kernel("champion_hopper"), table_of(H200)
    errors = list(neighbours._each_error(kernel, H200, shipped))
    for _ in range(5):
        m, n, k = (8 * int(x) for x in rng.integers(1, 1000, 3))
        problem = Problem.dense(m, n, k, dtype=BF16, layout=str(rng.choice(LAYOUTS)))
        weights = total = squares = 0.0
        for (dtype, out, precision, layout, aligned, _), (batch, *extents), error in errors:
            if dtype not in ("fp16", "bf16") or precision != "ieee" or not aligned:
                continue
            away = math.log2(batch) + neighbours.OTHER_LAYOUT * ((layout != problem.layout) + (dtype != out))
            for x, y in zip((m, n, k), extents, strict=True):
                away += abs(math.log2(max(x, neighbours.LEAST) / max(y, neighbours.LEAST)))
            weight = math.exp(-away / neighbours.REACH)
            weights, total, squares = weights + weight, total + weight * error, squares + weight * error**2
        said, sure = expectation(kernel, problem, H200, shipped), weights + neighbours.DOUBT
        spread = math.sqrt(squares / weights - (total / weights) ** 2)
        assert said.correction == pytest.approx(total / sure)
        asked = UNKNOWN_GAIN * neighbours.DOUBT / sure + neighbours.DISAGREEMENT * spread
        assert said.needed == pytest.approx(asked, rel=1e-6)


def test_neighbours_that_disagree_ask_for_more() -> None:
    """Twice as far apart, twice the demand; and none where they say the same."""
    kernel, near = find_kernel("champion_hopper"), Problem.dense(4096, 4096, 5000, dtype=BF16, layout="NT")
    shapes = [Problem.dense(4096, 4096, k, dtype=BF16, layout="NT") for k in (4096, 6144)]

    def needed(*ratios: float) -> float:
        entries = []
        for problem, ratio in zip(shapes, ratios, strict=True):
            promised = cublas_seconds(problem, H200) / kernel.estimate(problem, KNOWN, H200)
            shape = 1, problem.m, problem.n, problem.k
            entries.append((class_of(problem), shape, Entry(kernel.name, CONFIG, ratio * promised)))
        return expectation(kernel, near, H200, Table(entries)).needed

    alike, apart, wide = needed(0.9, 0.9), needed(0.9 / 1.1, 0.9 * 1.1), needed(0.9 / 1.21, 0.9 * 1.21)
    assert 0 < alike < 0.05 and (wide - alike) == pytest.approx(2 * (apart - alike), rel=0.01)


def test_a_poor_config_that_is_no_longer_the_first_choice_leaves_it_to_the_model() -> None:
    """Held against what cuBLAS took there, and no more hopeful than it was of the old config."""
    kernel = find_kernel("champion_hopper")
    first = next(iter(kernel.configs(BIG, H200)))
    old = replace(first, group=4)
    promised, of_old = (1e6 * kernel.estimate(BIG, config, H200) for config in (first, old))

    def decided(cublas_us: float, config, ratio: float):
        shape = 1, 4096, 4096, 4096
        entry = Entry(kernel.name, config.to_dict(), ratio, "measured.json", cublas_us)
        return decide(BIG, H200, table=Table([(class_of(BIG), shape, entry)])).chosen

    assert decided(1.2 * promised, old, 1.2 * promised / of_old * 0.8).name == "cublas", "too hopeful"
    assert decided(1.2 * of_old, old, 1.0).source == "table"
    assert decided(0.9 * of_old, old, 0.9).name == "cublas", "as promised, but cuBLAS is faster"
    slow = replace(old, stages=2)
    of_slow = 1e6 * kernel.estimate(BIG, slow, H200)
    chosen = decided(1.2 * promised, slow, 1.2 * promised / of_slow)
    assert chosen.config == first and "measured of cuBLAS" in chosen.source and not chosen.measured
    assert decided(1.2 * promised, first, 0.5).name == "cublas", "measured, and still the first choice"


def test_tables_are_of_exact_shapes() -> None:
    known = table(BIG, 1.04)
    for other in (BIG.with_(precision="tf32", a=Matrix.dense(4096, 4096), b=Matrix.dense(4096, 4096)),
                  Problem.dense(4096, 4096, 4096, dtype=BF16), Problem.dense(4096, 4096, 4096, dtype=FP16, layout="NT"),
                  Problem.dense(4104, 4096, 4096, dtype=BF16, layout="NT")):  # fmt: skip
        assert known.find(other) is None
    with_c = Problem.dense(4096, 4096, 4096, dtype=BF16, layout="NT", beta=1.0)
    assert known.find(with_c) == known.find(BIG) is not None


def test_where_ours_is_less_exact_the_table_says_cublas() -> None:
    small = Problem.dense(128, 128, 128)
    assert decide(small, H200, table=Table()).chosen.name == "champion_fp32"
    decision = decide(small, H200, table=table(small, 1.0, "cublas", {}))
    assert decision.chosen.name == "cublas" and "less exact" in decision.why


def test_a_config_that_the_kernel_no_longer_has_is_passed_over() -> None:
    stale = table(BIG, 2.0, config={**CONFIG, "unheard_of": 1})
    assert not any(option.measured for option in decide(BIG, H200, table=stale).options)
    illegal = table(BIG, 2.0, config={**CONFIG, "stages": 64})
    assert not any(option.measured for option in decide(BIG, H200, table=illegal).options)


def test_the_users_own_tuning_goes_first() -> None:
    class Database:
        def load(self, kernel, problem, gpu):
            if kernel.name != "champion_hopper":
                return None
            from rungemm.tune.database import Tuned

            return Tuned(kernel.config_type.from_dict({**CONFIG, "group": 4}), 1.0, 1.2)

    decision = decide(BIG, H200, table=table(BIG, 0.9), database=Database())
    assert decision.chosen.source == "tuned here" and decision.chosen.config.group == 4


def test_unmeasured_a_champion_must_promise_a_gain() -> None:
    assert decide(BIG, H200, table=Table()).chosen.name == "cublas"
    ragged = decide(Problem.dense(4097, 4095, 4093, dtype=BF16), H200, table=Table())
    assert ragged.chosen.name == "champion_hopper" and "model" in ragged.why


def test_the_model_knows_what_cublas_was_measured_to_do() -> None:
    """H200.md's figures, within a factor of 1.5: enough to tell a cliff from a plain."""
    for shape, dtype, tflops in (
        ((8192,) * 3, BF16, 664), ((4097, 4095, 4093), BF16, 151), ((333, 777, 555), BF16, 16),
        ((1024,) * 3, BF16, 225), ((4096,) * 3, FP32, 51), ((1024,) * 3, FP32, 33.7), ((333, 777, 555), FP32, 16),
        ((4096, 4096, 64), BF16, 138), ((16, 4096, 4096), BF16, 42),
    ):  # fmt: skip
        problem = Problem.dense(*shape, dtype=dtype)
        assert 1 / 1.5 < problem.flops / cublas_seconds(problem, H200) / 1e12 / tflops < 1.5, (shape, dtype)


def test_nothing_to_multiply_is_nobodys_kernel() -> None:
    for problem in (Problem.dense(4, 4, 0), Problem.dense(4, 4, 4, alpha=0.0), Problem.dense(0, 4, 4)):
        assert decide(problem, H200).chosen.name == ELEMENTWISE


def test_where_the_host_decides_the_quicker_call_runs() -> None:
    small = Problem.dense(256, 256, 256, dtype=BF16)
    decision = decide(small, H200, table=Table())
    assert decision.chosen.name == "cublas" and decision.eager is not None and decision.eager.is_ours
    assert decision.eager.seconds <= decision.chosen.seconds + HOST_SAVED_S
    assert any(line.startswith("eager     champion_hopper") for line in describe(decision))
    config = decision.eager.config.to_dict()
    for ratio, eager in ((0.8, True), (0.5, False)):
        assert (decide(small, H200, table=table(small, ratio, config=config)).eager is not None) == eager
    assert decide(small, H200, table=table(small, 1.2, config=config)).eager is None, "ours runs anyway"
    assert decide(small, H200, table=table(small, 1.0, "cublas", {})).eager is None, "less exact"
    for other in (BIG, Problem.dense(32, 32, 131072, dtype=BF16, layout="NT"), replace(small, alpha=0.0)):
        assert decide(other, H200, table=Table()).eager is None
    assert decide(small, find_gpu("a100-80"), table=Table()).eager is None, "nothing of ours was timed there"


def test_no_time_is_told_of_rungs_that_nobody_timed() -> None:
    decision = explain_dispatch((np.int64(1536), 1536, 1536), dtype="bf16", layout="NT", gpu="h200")
    lines = describe(decision)
    (untold,) = [line for line in lines if line.startswith("not called")]
    assert "persistent" in untold and not any(line.startswith("also      persistent") for line in lines)
    assert any(line.startswith(("also      champion_hopper", "chosen    champion_hopper")) for line in lines)


def test_what_is_not_fused_is_said() -> None:
    problem = Problem.dense(64, 32, 16, epilogue=Epilogue("row", "gelu", scale=2.0))
    decision = decide(problem, H200, table=table(without_epilogue(problem), 3.0, "vectorised",
                      find_kernel("vectorised").default_config(without_epilogue(problem), H200).to_dict()))  # fmt: skip
    chosen = decision.chosen
    assert chosen.name == "vectorised" and chosen.bias_is_c and chosen.after == Epilogue(None, "gelu", False, 2.0)
    text = "\n".join(describe(decision))
    assert "gelu + scale 2, by elementwise kernels of torch (not fused)" in text and "bias      read as C" in text
    gated = decide(Problem.dense(64, 32, 16, epilogue=Epilogue(None, "silu", True)), H200)
    assert all(o.problem.d.cols == 32 and o.after.gated for o in gated.options if o.is_ours and o.after)


def test_what_is_fused_is_said() -> None:
    problem = replace(BIG, epilogue=Epilogue("row", "gelu"))
    decision = decide(problem, H200, table=Table())
    assert decision.chosen.name == "champion_hopper" and decision.chosen.after is None, "saves a pass over D"
    assert "epilogue  row bias + gelu, fused into the kernel" in describe(decision)
    assert decide(replace(BIG, epilogue=Epilogue("row")), H200, table=Table()).chosen.name == "cublas", "has that too"
    gated = decide(replace(problem, epilogue=Epilogue("row", "silu", True), d=Matrix.dense(4096, 2048, BF16)), H200)
    ours = next(option for option in gated.options if option.name == "champion_hopper")
    assert ours.problem.epilogue == Epilogue("row") and ours.after == Epilogue(None, "silu", True)
    assert ours.problem.d.cols == 4096 and not ours.bias_is_c


def test_a_config_measured_without_an_activation_gives_way_to_one_that_hides_it() -> None:
    """128x256 tiles in halves, the table's best for the bare product, would do nothing else while they activate."""
    halves = {**CONFIG, "tile_m": 128, "tile_n": 256, "schedule": "halves", "stages": 4, "buffers": 1}
    known = table(BIG, 1.0, config=halves)
    bare, fused = (decide(replace(BIG, epilogue=e), H200, table=known) for e in (None, Epilogue("row", "gelu")))
    assert bare.chosen.config.schedule == "halves" and fused.chosen.config.schedule == "turns"
    assert fused.chosen.source == "table" and fused.chosen.seconds > bare.chosen.seconds
    assert decide(replace(BIG, epilogue=Epilogue("row")), H200, table=known).chosen.config.schedule == "halves"


def test_explain_takes_shapes_and_names() -> None:
    decision = explain_dispatch((3, 64, 64, 64), gpu="a100", dtype="fp16", layout="TN")
    assert decision.problem.batch == 3 and decision.gpu.name == "a100-80"
    assert any("sm_90" in reason for name, reason in decision.rejected if name == "champion_hopper")
    lines = describe(decision)
    assert lines[0].startswith("problem   3x 64x64x64 fp16 TN") and "NVIDIA A100 80GB" in lines[0]
    with pytest.raises(ValueError, match=r"shape \(3, 4\) is not"):
        explain_dispatch((3, 4))


def raw(us: dict[str, list[float]], cold: bool = True, date: str = "2026-01-01", **changes) -> dict:
    problem = {"m": 4096, "n": 4096, "k": 4096, "batch": 1, "dtype": "bf16", "out_dtype": "bf16", "precision": "ieee",
               "layout": "NT", "alpha": 1.0, "beta": 0.0, **changes}  # fmt: skip
    lanes = {name: {"us": times, "failure": None} for name, times in us.items()}
    for name in us:
        if name != "cublas":
            lanes[name] |= {"kernel": "champion_hopper", "config": CONFIG | {"group": int(name)}}
    return {"schema": SCHEMA, "version": VERSION, "environment": {"date": date}, "settings": {},
            "measurements": [{"lanes": lanes, "problem": problem, "cold_l2": {"cold": cold}}]}  # fmt: skip


def test_the_shipped_table_comes_from_results(tmp_path: Path, monkeypatch, capsys) -> None:
    folder = tmp_path / "results" / "h200" / "raw"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text(json.dumps(raw({"cublas": [10.0, 11.0], "4": [9.0, 9.9], "8": [8.0, 8.8]})))
    (folder / "b.json").write_text(json.dumps(raw({"cublas": [10.0], "4": [20.0]}, m=64)))
    (folder / "c.json").write_text(json.dumps(raw({"cublas": [10.0], "4": [1.0]}, cold=False)))
    (folder / "d.json").write_text(json.dumps(raw({"cublas": [10.0], "4": [1.0]}, date="2025-01-01")))
    (folder / "e.json").write_text(json.dumps(raw({"4": [1.0]}, m=128)))
    monkeypatch.setattr(generate, "TABLES", tmp_path)
    assert generate.main(["h200", str(tmp_path / "results")]) == 0
    assert "2 problem classes, ours ahead of cuBLAS in 1" in capsys.readouterr().out
    made = load_table(tmp_path / "h200.json")
    assert len(made) == 2
    entry = made.find(BIG)
    assert (entry.ratio, entry.config["group"], entry.source) == (1.25, 8, "a.json")
    assert decide(BIG, H200, table=made).chosen.config.group == 8


def test_a_card_that_rests_counts_as_much_as_one_at_its_power_cap(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "results" / "h200"
    for name in (*generate.FOLDERS, generate.RESTED):
        (folder / name).mkdir(parents=True)

    def made(**rested: list[float]):
        (folder / "raw" / "a.json").write_text(json.dumps(raw({"cublas": [10.0], "4": [9.6], "2": [9.7]})))
        if rested:
            document = raw({"cublas": [9.0], **rested})
            document["settings"] = {"pause_s": 0.02}
            (folder / generate.RESTED / "a.json").write_text(json.dumps(document))
        assert generate.main(["h200", str(tmp_path / "results")]) == 0
        return load_table(tmp_path / "h200.json").find(BIG)

    monkeypatch.setattr(generate, "TABLES", tmp_path)
    assert (made().ratio, made().rested) == (round(10 / 9.6, 4), 0.0)
    slower = made(**{"4": [9.9]})
    # The other setting, not timed at rest, is not taken for better there.
    assert slower.config["group"] == 4 and (slower.sustained, slower.rested) == (round(10 / 9.6, 4), round(9 / 9.9, 4))
    assert slower.ratio == round((slower.sustained * slower.rested) ** 0.5, 4) < 1
    decision = decide(BIG, H200, table=load_table(tmp_path / "h200.json"))
    assert decision.chosen.name == "cublas" and "0.909 on a card that rests" in decision.why
    better = made(**{"4": [9.9], "2": [8.9]})
    assert better.config["group"] == 2 and better.ratio > 1
    (folder / generate.RESTED / "a.json").rename(folder / "raw" / "b.json")
    assert generate.main(["h200", str(tmp_path / "results")]) == 2


def test_of_several_runs_the_least_of_the_newest_counts(tmp_path: Path, monkeypatch) -> None:
    """One run's luck against two that agree; a run too old to count; what the library ran; a tuning's last word."""
    folder = tmp_path / "results" / "h200"
    for name in generate.FOLDERS:
        (folder / name).mkdir(parents=True)
    for number, us in enumerate((5.0, 9.0, 9.5, 8.9)):
        document = raw({"cublas": [10.0], "4": [us], "2": [9.3]}, date=f"2026-01-0{number + 1}")
        (folder / "raw" / f"{number}.json").write_text(json.dumps(document))
    lucky = raw({"cublas": [10.0], "8": [9.2]}, date="2026-01-05")
    lucky["measurements"][0]["lanes"]["library"] = {"us": [1.0], "failure": None, "kernel": "cublas", "config": None}
    (folder / "repeat" / "lucky.json").write_text(json.dumps(lucky))
    tuned = raw({"cublas": [10.0], "16": [8.0]}, n=2048)["measurements"][0]
    tuning = {"schema": generate.TUNINGS, "tunings": [{"date": "2026-01-06", "final": tuned}]}
    (folder / "tuning" / "tune.json").write_text(json.dumps(tuning))
    monkeypatch.setattr(generate, "TABLES", tmp_path)
    assert generate.main(["h200", str(tmp_path / "results")]) == 0
    made = load_table(tmp_path / "h200.json")
    entry = made.find(BIG)
    assert (entry.config["group"], entry.ratio, entry.runs) == (2, round(10 / 9.3, 4), 3)
    other = made.find(Problem.dense(4096, 2048, 4096, dtype=BF16, layout="NT"))
    assert (other.config["group"], other.ratio, other.runs) == (16, 1.25, 1)


def test_one_run_must_say_more_than_several() -> None:
    def decided(ratio: float, runs: int):
        entry = Entry("champion_hopper", CONFIG, ratio, "measured.json", 100.0, runs)
        return decide(BIG, H200, table=Table([(class_of(BIG), (1, 4096, 4096, 4096), entry)]))

    assert [decided(1.005, runs).chosen.name for runs in (1, 2)] == ["cublas", "champion_hopper"]
    assert "in one run" in decided(1.005, 1).why and decided(1.02, 1).chosen.name == "champion_hopper"


def test_a_measured_epilogue_decides_over_the_bare_product() -> None:
    problem = replace(BIG, epilogue=Epilogue("row", "gelu"))
    shape = 1, 4096, 4096, 4096

    def decided(ratio: float, asked: Problem = problem, **changes):
        entry = Entry("champion_hopper", {**CONFIG, "group": 4, **changes}, ratio, "linear.json")
        known = {(class_of(BIG), shape, str(problem.epilogue)): entry}
        plain = Entry("champion_hopper", CONFIG, 1.1)
        return decide(asked, H200, table=Table([(class_of(BIG), shape, plain)], known)).chosen

    assert decided(1.05).source == "table, fused" and decided(1.05).config.group == 4
    assert decided(0.98).name == "cublas", "slower than eager torch, though the product alone is faster"
    assert decided(0.98, stages=64).source == "table", "a config that is legal no more says nothing"
    assert decided(0.98, replace(BIG, epilogue=Epilogue("row", "relu"))).source == "table"
    assert decided(0.98, BIG).source == "table"


def test_the_shipped_table_knows_fused_epilogues() -> None:
    fused = generate.fused_of(Path(__file__).parents[2] / "results" / "h200" / "linear.json")
    assert fused and not generate.fused_of(Path("no such file"))
    for record in fused:
        problem = Problem.dense(record["m"], record["n"], record["k"], dtype=BF16, layout="NT",
                                epilogue=Epilogue("row", "gelu"))  # fmt: skip
        known = table_of(H200).find_fused(problem)
        assert known is not None and known.ratio == record["ratio"]
        assert find_kernel(known.kernel).supports(problem, KNOWN.from_dict(known.config), H200) is None


def test_damaged_tables_and_wrong_arguments_are_one_line(tmp_path: Path, capsys) -> None:
    path = tmp_path / "x.json"
    for text in ("{", "{}", '{"format": 99, "entries": []}', '{"format": 1, "entries": [{}]}'):
        path.write_text(text)
        with pytest.raises(TableError, match=r"make it again"):
            load_table(path)
    assert generate.main([]) == 2 and generate.main(["h300"]) == 2
    assert "card 'h300' is not in the zoo" in capsys.readouterr().err


def test_the_shipped_tables_are_legal() -> None:
    """Every entry names a rung and a config that its own predicate takes."""
    for name in ("h200",):
        shipped = table_of(find_gpu(name))
        for (dtype, out, precision, layout, aligned, reads_c), shapes in shipped._classes.items():
            for (batch, m, n, k), entry in shapes.items():
                from rungemm.dtypes import dtype_named

                problem = Problem.dense(
                    m, n, k, dtype=dtype_named(dtype), out_dtype=dtype_named(out), layout=layout, batch=batch,
                    beta=1.0 if reads_c else 0.0, precision=precision,
                )  # fmt: skip
                if entry.kernel == "cublas":
                    assert entry.config == {} and entry.ratio == 1
                    continue
                kernel = find_kernel(entry.kernel)
                config = kernel.config_type.from_dict(entry.config)
                assert kernel.supports(problem, config, find_gpu(name)) is None
                assert class_of(problem)[4] == aligned


def test_for_a_choice_alone_no_more_is_asked_than_may_be_chosen(monkeypatch) -> None:
    """A champion's word costs milliseconds: not after a measurement, nor of an untimed one where a timed one speaks."""
    asked: list[str] = []
    for each in (find_kernel("champion_hopper"), find_kernel("champion_mma")):
        noted = lambda *a, kernel=each, real=each.configs: asked.append(kernel.name) or real(*a)  # noqa: E731
        monkeypatch.setattr(each, "configs", noted)

    def names(problem: Problem, **options) -> set[str]:
        asked.clear()
        decide(problem, H200, all_rungs=False, **options)
        return set(asked)

    assert "champion_mma" not in names(BIG, table=Table()) and "champion_hopper" in asked
    assert names(BIG, table=table(BIG, 1.1)) <= {"champion_hopper"}
    assert "champion_mma" in {o.name for o in decide(BIG, find_gpu("a100-80"), table=Table(), all_rungs=False).options}
    stale = table(BIG, 1.1, config={**CONFIG, "stages": 64})
    assert decide(BIG, H200, table=stale, all_rungs=False).chosen == decide(BIG, H200, table=stale).chosen

    class Database:
        def load(self, kernel, problem, gpu):
            from rungemm.tune.database import Tuned

            if kernel.name == "champion_mma":
                return Tuned(kernel.default_config(problem, gpu), 1.0, 1.5)
            return None

    known = table(BIG, 1.1)
    assert decide(BIG, H200, table=known, database=Database(), all_rungs=False).chosen.name == "champion_mma"
