"""The Hopper champion's measurements against its model, and the table of tuned settings that is made of them.

    PYTHONPATH=src python3 tools/tuned_hopper.py RESULTS.json ...           # ranking: measured, model, first choice
    PYTHONPATH=src python3 tools/tuned_hopper.py RESULTS.json ... --fit 400 # better constants for the model
    PYTHONPATH=src python3 tools/tuned_hopper.py RESULTS.json ... --write   # kernels/hopper/tuned_h200.json

RESULTS are files of benchmarks/champion_hopper.py (raw samples of every setting, interleaved with cuBLAS). Regret is
the time of the setting that is ranked first over the time of the best one measured; settings never timed do not count.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from rungemm.bench.statistics import geometric_mean
from rungemm.dtypes import dtype_named
from rungemm.hardware import Gpu, find_gpu
from rungemm.kernels.hopper import estimate
from rungemm.kernels.hopper.champion import ChampionHopper, HopperConfig
from rungemm.kernels.hopper.tuned import FORMAT, kind_of, path_for
from rungemm.problem import Problem

KERNEL = ChampionHopper()
ERROR_LIMIT = {"tf32x3": 2.0}
"""A setting counts up to this ratio of its error to cuBLAS's; 1.02 elsewhere (issue 5)."""
CAPPED_SINCE = "2026-11-30T01:09:01"
"""Before, several programs an SM got no cap on their registers and ran one after another: not the kernel of today."""
CONSTANTS = (
    "CLOCK", "PRODUCTS", "L2_BYTES_A_CLOCK", "OUTSIDE", "DRAM_SHARE", "LAUNCH", "FILL", "STEP", "STORE", "SHARING",
    "APART", "FROM_REGISTERS", "FROM_REGISTERS_BY_TURNS", "LATENCY", "REDUCTION",
)  # fmt: skip


@dataclass
class Measured:
    """A problem and, by setting, cuBLAS's time over the setting's (median of the rounds' ratios) and microseconds."""

    problem: Problem
    source: str
    ratios: dict[HopperConfig, float] = field(default_factory=dict)
    us: dict[HopperConfig, float] = field(default_factory=dict)
    works: dict[HopperConfig, estimate.Work] = field(default_factory=dict)

    @property
    def best(self) -> HopperConfig:
        return max(self.ratios, key=self.ratios.__getitem__)

    def regret(self, config: HopperConfig) -> float:
        return self.ratios[self.best] / self.ratios[config]

    def predicted(self, config: HopperConfig, gpu: Gpu) -> float:
        """The model's microseconds, with its constants as they are now."""
        if config not in self.works:
            self.works[config] = KERNEL.work(self.problem, config, gpu)
        return 1e6 * estimate.seconds(self.works[config])


def read(paths: Iterable[Path]) -> list[Measured]:
    """All problems of the files; a later file's figures of a setting replace an earlier one's."""
    found: dict[Problem, Measured] = {}
    for path in paths:
        document = json.loads(path.read_text())
        capped = document["environment"]["date"] >= CAPPED_SINCE
        for record in document["measurements"]:
            p = record["problem"]
            problem = Problem.dense(p["m"], p["n"], p["k"], dtype=dtype_named(p["dtype"]), layout=p["layout"],
                                    precision=p["precision"])  # fmt: skip
            entry = found.setdefault(problem, Measured(problem, path.name))
            base = record["lanes"]["cublas"]
            limit = ERROR_LIMIT.get(p["precision"], 1.02)
            for lane in record["lanes"].values():
                if lane.get("kernel") != KERNEL.name or lane["failure"] or lane["error"] > limit * base["error"]:
                    continue
                config = HopperConfig.from_dict(lane["config"])
                if config.programs > 132 and not capped:
                    continue
                entry.ratios[config] = statistics.median(b / u for b, u in zip(base["us"], lane["us"], strict=False))
                entry.us[config] = statistics.median(lane["us"])
                entry.source = path.name
    return [entry for entry in found.values() if entry.ratios]


def ranked(entry: Measured, gpu: Gpu) -> list[HopperConfig]:
    return sorted(entry.ratios, key=lambda config: entry.predicted(config, gpu))


def model_regret(entries: list[Measured], gpu: Gpu) -> float:
    """Geometric mean."""
    return geometric_mean([entry.regret(ranked(entry, gpu)[0]) for entry in entries])


def model_error(entries: list[Measured], gpu: Gpu) -> float:
    """Root mean square of log(predicted / measured), over settings that are within 1.7 of the best."""
    logs = [
        math.log(entry.predicted(config, gpu) / entry.us[config])
        for entry in entries for config in entry.ratios if entry.regret(config) < 1.7
    ]  # fmt: skip
    return math.sqrt(sum(x * x for x in logs) / len(logs))


def show(entries: list[Measured], gpu: Gpu) -> None:
    """A line a problem: the best setting, what the model puts first among the measured, what configs() begins with."""
    first_regrets, unmeasured = [], 0
    for entry in entries:
        order = ranked(entry, gpu)
        first = KERNEL.default_config(entry.problem, gpu)
        regret = entry.regret(first) if first in entry.ratios else None
        if regret is None:
            unmeasured += 1
        else:
            first_regrets.append(regret)
        times = " ".join(
            f"{c.label}:{entry.us[c]:.1f}/{entry.predicted(c, gpu):.1f}" for c in order[:5]
        )
        print(f"{entry.problem} best {entry.best.label} {entry.ratios[entry.best]:.3f} | model {order[0].label} "
              f"{entry.regret(order[0]):.3f} | first {first.label} "
              f"{'never timed' if regret is None else f'{regret:.3f}'} | measured/predicted us {times}")  # fmt: skip
    print(f"{len(entries)} problems: model's regret {model_regret(entries, gpu):.4f}, error of its seconds "
          f"{model_error(entries, gpu):.3f}; first choices' regret {geometric_mean(first_regrets or [1.0]):.4f} "
          f"({unmeasured} never timed)")  # fmt: skip


def loss(entries: list[Measured], gpu: Gpu) -> float:
    """What a fit makes small."""
    return 4 * math.log(model_regret(entries, gpu)) + model_error(entries, gpu)


def improve(entries: list[Measured], gpu: Gpu, trials: int, seed: int) -> None:
    """Random steps of the model's constants, kept where they lower the loss."""
    rng = random.Random(seed)
    best = loss(entries, gpu)
    for _ in range(trials):
        changed = {name: getattr(estimate, name) for name in rng.sample(CONSTANTS, rng.choice((1, 1, 2)))}
        for name, value in changed.items():
            setattr(estimate, name, value * math.exp(rng.gauss(0, 0.12)))
        now = loss(entries, gpu)
        if now < best:
            best = now
        else:
            for name, value in changed.items():
                setattr(estimate, name, value)


def fit(entries: list[Measured], gpu: Gpu, trials: int, folds: int = 5) -> None:
    """Prints fitted constants; before, the figures of folds that a fit to the others has not seen."""
    start = {name: getattr(estimate, name) for name in CONSTANTS}

    def reset() -> None:
        for name, value in start.items():
            setattr(estimate, name, value)

    def figures(some: list[Measured]) -> str:
        return f"regret {model_regret(some, gpu):.4f}, error {model_error(some, gpu):.4f}"

    print(f"before: {figures(entries)}")
    # Problems of the same extents stay together, whatever their types and layouts.
    groups = sorted({(e.problem.m, e.problem.n, e.problem.k) for e in entries})
    random.Random(0).shuffle(groups)
    regrets, errors = [], []
    for fold in range(folds):
        out = set(groups[fold::folds])
        seen = [e for e in entries if (e.problem.m, e.problem.n, e.problem.k) not in out]
        unseen = [e for e in entries if (e.problem.m, e.problem.n, e.problem.k) in out]
        reset()
        improve(seen, gpu, trials, fold)
        print(f"fold {fold}: fitted to {len(seen)}, {figures(seen)}; the other {len(unseen)}: {figures(unseen)}")
        regrets += [entry.regret(ranked(entry, gpu)[0]) for entry in unseen]
        errors.append(model_error(unseen, gpu))
    error = math.sqrt(statistics.fmean(e * e for e in errors))
    print(f"not seen: regret {geometric_mean(regrets):.4f}, error {error:.4f}")
    reset()
    improve(entries, gpu, trials, folds)
    print(f"after: {figures(entries)}")
    for name in CONSTANTS:
        print(f"{name} = {getattr(estimate, name):.4g}")


def write(entries: list[Measured], gpu: Gpu) -> None:
    """The table of the best settings."""
    records = []
    for entry in entries:
        bits, precision, layout, copied = kind_of(entry.problem)
        records.append({
            "bits": bits, "precision": precision, "layout": layout, "copied": copied, "m": entry.problem.m,
            "n": entry.problem.n, "k": entry.problem.k, "config": entry.best.to_dict(),
            "ratio": round(entry.ratios[entry.best], 4), "us": round(entry.us[entry.best], 2),
            "source": entry.source,
        })  # fmt: skip
    records.sort(key=lambda r: (r["bits"], r["precision"], r["layout"], r["m"], r["n"], r["k"]))
    path = path_for(gpu)
    lines = ",\n  ".join(json.dumps(record) for record in records)
    path.write_text(f'{{"format": {FORMAT}, "card": "{gpu.name}", "entries": [\n  {lines}\n]}}\n')
    print(f"wrote {len(records)} entries to {path}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--card", default="h200")
    parser.add_argument("--fit", type=int, default=0, metavar="TRIALS")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    gpu = find_gpu(options.card)
    entries = read(options.results)
    if options.write:
        write(entries, gpu)
    elif options.fit:
        fit(entries, gpu, options.fit)
    else:
        show(entries, gpu)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
