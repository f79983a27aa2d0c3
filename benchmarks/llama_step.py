"""A training step of the Llama-style model of ``examples/library_llama.py``: torch's, torch's again, and patched.

    PYTHONPATH=src python benchmarks/llama_step.py [--steps 50] [--timing-steps 300] [--dtype bf16|fp32] [--blocks 2]
                                                   [--tokens 2048] [--width 1024] [--out results/h200/llama.json]

Three models with the same weights: torch's, a second one that is torch's as well ("torch again", the control: what it
differs by is noise), and one patched. They train for ``--steps``, as the example's do, and their losses are compared.
Then each of ``--timing-steps`` steps runs all three on the same text, in an order that is rotated and reversed from
step to step, so that in six steps every order occurs once. Reported: each model's median time, and the median over
steps of the ratio to torch's time in the same step, with its 95% interval: below 1 is faster than torch's.
A step is forward, backward and optimiser, from an idle card to an idle card; "host" is the time until all of it was
queued: where that is nearly the whole, the card waited for the host.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "src")]

from needs_card import need_torch

need_torch()
import library_llama as llama
import torch
from torch import nn

import rungemm
from rungemm.bench.environment import describe_environment
from rungemm.bench.statistics import paired_ratio, spread_of
from rungemm.bench.store import write_json
from rungemm.compiling import CompileError, compile_many
from rungemm.ops.dispatch import Decision

TORCH, CONTROL, PATCHED = "torch", "torch again", "patched"
Decisions = dict[tuple[int, int], dict[str, Decision]]


def order_of(step: int) -> list[str]:
    """The three names, in an order that takes six steps to come again."""
    names = [TORCH, CONTROL, PATCHED]
    names = names[step % 3 :] + names[: step % 3]
    return names[::-1] if step % 2 else names


def time_steps(run: llama.Run, steps: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Milliseconds of every model's steps: all of a step, and the host's part of it."""
    whole: dict[str, list[float]] = {name: [] for name in run.models}
    host: dict[str, list[float]] = {name: [] for name in run.models}
    for step in range(steps):
        text = run.text()
        for name in order_of(step):
            run.synchronize()
            begin = time.perf_counter()
            run.step(name, text)
            queued = time.perf_counter()
            run.synchronize()
            whole[name].append(1e3 * (time.perf_counter() - begin))
            host[name].append(1e3 * (queued - begin))
    return whole, host


def decisions_of(run: llama.Run, dtype: str) -> Decisions:
    """By (N, K) of the linear layers, the library's choice for the three products of a training step."""
    rows = 2 * run.tokens
    found: Decisions = {}
    for layer in run.models[PATCHED].modules():
        if isinstance(layer, nn.Linear):
            n, k = layer.out_features, layer.in_features
            products = {
                "forward": ((rows, n, k), "NT"), "gradient of the input": ((rows, k, n), "NN"),
                "gradient of the weight": ((n, k, rows), "TN"),
            }  # fmt: skip
            found[n, k] = {
                what: rungemm.explain_dispatch(shape, dtype=dtype, layout=layout, precision="ieee")
                for what, (shape, layout) in products.items()
            }
    return found


def compile_ahead(decisions: Decisions) -> None:
    """What the library will launch, on all cores: the first step would compile one kernel after the other."""
    every = [decision for products in decisions.values() for decision in products.values()]
    jobs = [(option.plan, each.gpu.arch) for each in every if (option := each.chosen).plan is not None]
    failed = [result for result in compile_many(jobs) if isinstance(result, CompileError)]
    print(f"{len(jobs)} of {len(every)} products are ours, {len(failed)} do not compile", *failed, file=sys.stderr)


def layers_of(run: llama.Run, decisions: Decisions) -> list[dict[str, Any]]:
    """For each size of linear layer its names, the library's choices, and the node that autograd has.

    A node of torch's (as ViewBackward0) computes all three by torch: the library leaves a layer to it where torch is
    chosen for each, or what the others would save is less than a derivative in Python costs the host.
    """
    found = []
    named = {name: each for name, each in run.models[PATCHED].named_modules() if isinstance(each, nn.Linear)}
    for (n, k), products in decisions.items():
        alike = [name for name, each in named.items() if (each.out_features, each.in_features) == (n, k)]
        x = torch.zeros(2, run.tokens, k, device=run.device, dtype=run.dtype, requires_grad=True)
        found.append({
            "layers": alike, "n": n, "k": k,
            "choices": {what: decision.chosen.name for what, decision in products.items()},
            "autograd_node": type(named[alike[0]](x).grad_fn).__name__,
        })  # fmt: skip
    return found


def main() -> int:
    parser = llama.parser_of(__doc__.splitlines()[0])
    parser.add_argument("--timing-steps", type=int, help="default: 300 on a card, 10 on a CPU")
    parser.add_argument("--out", type=Path, help="JSON with the losses and every sample")
    arguments = llama.parsed(parser)
    on_card = torch.cuda.is_available()
    steps = arguments.timing_steps if arguments.timing_steps is not None else 300 if on_card else 10
    if steps < 2:
        parser.error(f"--timing-steps is {steps}: an interval needs 2 or more, and 6 try every order")

    kinds = {TORCH: lambda model: model, CONTROL: lambda model: model, PATCHED: rungemm.patch}
    run = llama.Run(arguments, kinds)
    decisions = decisions_of(run, arguments.dtype)
    if on_card:
        compile_ahead(decisions)
    losses, _ = run.train(arguments.steps)
    allowed = llama.ALLOWED[arguments.dtype]
    differ = {name: llama.difference(losses[TORCH], losses[name]) for name in (CONTROL, PATCHED)}
    agree = differ[PATCHED] <= allowed and losses[PATCHED][-1] < losses[PATCHED][0]
    for name, values in losses.items():
        apart = f", at most {differ[name]:.2%} from torch's" if name in differ else ""
        print(f"{name:12} loss {values[0]:.4f} -> {values[-1]:.4f}{apart}")

    whole, host = time_steps(run, steps)
    medians = {name: {"step": spread_of(whole[name]).median, "host": spread_of(host[name]).median} for name in whole}
    ratios = {name: paired_ratio(whole[name], whole[TORCH]) for name in (CONTROL, PATCHED)}
    for name, median in medians.items():
        ratio = f", {ratios[name]} of torch's" if name in ratios else ""
        print(f"{name:12} {median['step']:.3f} ms a step, host {median['host']:.3f} ms{ratio}")
    if arguments.out:
        write_json(arguments.out, document_of(run, arguments, steps, decisions) | {
            "losses_differ_by": differ, "allowed": allowed, "losses_agree": agree, "losses": losses,
            "median_ms": medians,
            "ratio_to_torch": {name: {"median": r.value, "low": r.low, "high": r.high} for name, r in ratios.items()},
            "ms": {name: [round(x, 4) for x in values] for name, values in whole.items()},
            "host_ms": {name: [round(x, 4) for x in values] for name, values in host.items()},
        })  # fmt: skip
    return 0 if agree else 1


def document_of(run: llama.Run, arguments: argparse.Namespace, steps: int, decisions: Decisions) -> dict[str, Any]:
    """What was run, and where."""
    card = torch.cuda.get_device_name() if run.device == "cuda" else "none: the CPU"
    return {
        "what": "a training step of a Llama-style model: torch's linear layers, the same again, and rungemm.patch",
        "environment": describe_environment(card),
        "dtype": arguments.dtype, "blocks": arguments.blocks, "width": run.width, "vocabulary": run.vocabulary,
        "tokens": 2 * run.tokens, "steps": arguments.steps, "timing_steps": steps, "interval": 0.95,
        "linear_layers": layers_of(run, decisions),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
