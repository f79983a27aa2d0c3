"""The Llama example trains alike with and without patch, and its benchmark times three models in every order."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "examples")]

import library_llama  # noqa: E402
import llama_step  # noqa: E402

from rungemm.bench.statistics import paired_ratio  # noqa: E402

SMALL = ("--steps", "3", "--tokens", "8", "--blocks", "1")


@pytest.fixture
def command(monkeypatch):
    """Runs a script's main with arguments, on the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def run(module, *arguments):
        monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
        return module.main()

    return run


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_example_compares_losses(command, capsys, dtype):
    assert command(library_llama, *SMALL, "--dtype", dtype) == 0
    assert "losses differ by at most" in capsys.readouterr().out


def test_the_example_fails_where_a_patched_layer_is_wrong(command, monkeypatch):
    linear = torch.nn.functional.linear

    def wrong(layer, x):
        return 0.5 * linear(x, layer.weight, layer.bias)

    monkeypatch.setattr("rungemm.ops.patching.PatchedLinear.forward", wrong)
    assert command(library_llama, *SMALL, "--dtype", "fp32") == 1


def test_six_steps_try_every_order():
    assert len({tuple(llama_step.order_of(step)) for step in range(6)}) == 6


def test_the_benchmark_keeps_every_sample(command, tmp_path, capsys):
    out = tmp_path / "llama.json"
    assert command(llama_step, *SMALL, "--timing-steps", "7", "--dtype", "fp32", "--out", str(out)) == 0
    found, printed = json.loads(out.read_text()), capsys.readouterr().out
    assert found["environment"]["torch"] == torch.__version__ and "commit" in found["environment"]
    assert (found["blocks"], found["tokens"], found["timing_steps"]) == (1, 16, 7)
    # The control is torch's model with the same weights and data.
    assert found["losses_differ_by"]["torch again"] < 1e-5 and found["losses_agree"] is True
    for name in ("torch", "torch again", "patched"):
        assert len(found["ms"][name]) == len(found["host_ms"][name]) == 7 and name in printed
        assert all(0 < host <= whole for host, whole in zip(found["host_ms"][name], found["ms"][name], strict=True))
    ratio = paired_ratio(found["ms"]["patched"], found["ms"]["torch"])
    told = found["ratio_to_torch"]["patched"]
    assert told == pytest.approx({"median": ratio.value, "low": ratio.low, "high": ratio.high}, rel=1e-3)
    layers = [name for entry in found["linear_layers"] for name in entry["layers"]]
    assert len(layers) == 8 and "head" in layers
    assert all(set(entry["choices"]) == {"forward", "gradient of the input", "gradient of the weight"}
               for entry in found["linear_layers"])  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--steps", "0"), "--steps is 0"),
        (("--width", "640"), "multiple of 512"),
        (("--timing-steps", "1"), "2 or more"),
    ],
)
def test_arguments_that_no_run_can_have(command, capsys, arguments, says):
    with pytest.raises(SystemExit) as caught:
        command(llama_step, *SMALL, *arguments)
    assert caught.value.code == 2 and says in capsys.readouterr().err
