"""The zoo's figures against the datasheets' dense columns, and the matching of what a driver reports."""

from __future__ import annotations

import pytest

from rungemm.hardware import ZOO, detect_gpu, find_gpu, match_gpu

# Dense TFLOPS as the makers' datasheets print them (their sparse column is twice as high), typed in by hand here so
# that a wrong rate in the zoo cannot agree with itself.
DATASHEET_DENSE = {
    "h100": {"fp32": 67, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8": 1979, "int8": 1979},
    "h200": {"fp32": 67, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8": 1979, "int8": 1979},
    "a100-40": {"fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624},
    "a100-80": {"fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624},
    "a6000": {"fp32": 38.7, "tf32": 77.4, "bf16": 154.8},
    "rtx3090": {"fp32": 35.6, "tf32": 35.6, "bf16": 71},
    "rtx4090": {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2},
    "l40s": {"fp32": 91.6, "tf32": 183, "fp16": 362, "bf16": 362, "fp8": 733},
    "l4": {"fp32": 30.3, "tf32": 60, "fp16": 121, "bf16": 121, "fp8": 242.5},
}


@pytest.mark.parametrize("name", DATASHEET_DENSE)
def test_peaks_are_the_dense_ones(name: str) -> None:
    for kind, dense in DATASHEET_DENSE[name].items():
        assert ZOO[name].peak(kind) == pytest.approx(dense, rel=0.015), kind


def test_h100_sxm_bf16_is_989_dense() -> None:
    assert round(find_gpu("h100").peaks["bf16"]) == 989


def test_every_card_names_its_source_and_has_sane_limits() -> None:
    for gpu in ZOO.values():
        assert "datasheet" in gpu.source or "whitepaper" in gpu.source
        assert gpu.shared_per_block < gpu.shared_per_sm
        assert gpu.max_warps_per_sm in (48, 64)


@pytest.mark.parametrize(
    ("typed", "name"),
    [("H200", "h200"), ("nvidia h200", "h200"), ("a100", "a100-80"), ("RTX 4090", "rtx4090"), ("L40S", "l40s")],
)
def test_find_gpu_forgives_spelling(typed: str, name: str) -> None:
    assert find_gpu(typed).name == name


def test_find_gpu_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"card 'v100' is not in the zoo: use one of h100, h200"):
        find_gpu("v100")


@pytest.mark.parametrize(
    ("title", "arch", "mib", "name"),
    [
        ("NVIDIA H200", 90, 143771, "h200"),
        ("NVIDIA H100 80GB HBM3", 90, 81559, "h100"),
        ("NVIDIA A100-SXM4-40GB", 80, 40960, "a100-40"),
        ("NVIDIA A100-SXM4-80GB", 80, 81920, "a100-80"),
        ("NVIDIA GeForce RTX 4090", 89, 24564, "rtx4090"),
        ("NVIDIA L4", 89, 23034, "l4"),
        ("NVIDIA L40S", 89, 46068, "l40s"),
        ("NVIDIA RTX A6000", 86, 49140, "a6000"),
    ],
)
def test_driver_names_match(title: str, arch: int, mib: int, name: str) -> None:
    found = match_gpu(title, arch, mib)
    assert found is not None and found.name == name


def test_unknown_card_borrows_its_architecture_and_keeps_its_name() -> None:
    found = match_gpu("NVIDIA RTX A5000", 86, 24000)
    assert found is not None and found.arch == 86 and "A5000" in found.title
    assert match_gpu("NVIDIA GeForce GTX 1080", 61, 8000) is None


def test_detection_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert detect_gpu() is None
