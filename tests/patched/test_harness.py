# SPDX-License-Identifier: Apache-2.0
"""The harness itself: it rounds as hardware does, and it can fail."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from series_harness import launches, on_cpu, rounding, selection
from series_harness.selection import Rule

interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="speaks of the interpreter"
)

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def doubled(x, out, FACTOR: tl.constexpr):
    at = tl.arange(0, 16)
    tl.store(out + at, tl.load(x + at) * FACTOR)


def launch(factor):
    x = torch.arange(16, dtype=torch.float32, device="cuda")
    out = torch.empty_like(x)
    doubled[(1,)](x, out, FACTOR=factor)
    torch.testing.assert_close(out, 2 * x)
"""


@triton.jit
def _to_dtype(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


@triton.jit
def _widen(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(tl.float32))


def _edge_values() -> torch.Tensor:
    """Every bf16 pattern's fp32 neighbours: ties, carries, infinities, NaNs, zeros."""
    high = torch.arange(0, 1 << 16, 7, dtype=torch.int64).unsqueeze(1) << 16
    low = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF]).unsqueeze(0)
    bits = (high | low).flatten()
    return torch.from_numpy(bits.numpy().astype(np.uint32).view(np.float32))


def test_bf16_bits_are_those_of_torch() -> None:
    values = _edge_values()
    expected = values.to(torch.bfloat16)
    bits = torch.from_numpy(rounding.to_bf16_bits(values.numpy()).view(np.int16))
    actual = bits.view(torch.bfloat16)
    assert torch.equal(actual.isnan(), expected.isnan())
    keep = ~expected.isnan()
    assert torch.equal(actual[keep].view(torch.int16), expected[keep].view(torch.int16))


@interpreted
def test_a_kernel_stores_what_torch_would_round_to() -> None:
    values = _edge_values()
    values = values[~values.isnan()][: 1 << 15]
    # Zeros among the values once sent the whole block down the truncating path.
    values[::100] = 0
    out = torch.empty(values.numel(), dtype=torch.bfloat16)
    _to_dtype[(1,)](values, out, N=values.numel())
    assert torch.equal(out, values.to(torch.bfloat16))
    back = torch.empty(values.numel(), dtype=torch.float32)
    _widen[(1,)](out, back, N=values.numel())
    assert torch.equal(back, out.float())


@interpreted
def test_launches_are_counted_by_module_and_name() -> None:
    name = f"{__name__}._widen"
    before = launches.counts[name]
    source = torch.ones(16, dtype=torch.bfloat16)
    _widen[(1,)](source, torch.empty(16), N=16)
    assert launches.counts[name] == before + 1


@interpreted
def test_cuda_means_cpu_while_a_test_runs() -> None:
    with on_cpu.CudaMeansCpu():
        assert torch.zeros(1, device="cuda").device.type == "cpu"
        assert torch.zeros(1, device=torch.device("cuda", 0)).device.type == "cpu"
        assert torch.zeros(1).to("cuda").cuda().device.type == "cpu"
        torch.set_default_device("cuda")
        assert torch.ones(2).device.type == "cpu"


@interpreted
def test_the_platform_answers_what_it_would_refuse() -> None:
    from vllm.platforms import current_platform

    assert current_platform.num_compute_units() == on_cpu.COMPUTE_UNITS
    assert current_platform.device_type == "cpu"
    assert not current_platform.is_cuda_alike()


def test_a_rule_keeps_what_it_names_and_says_why_the_rest_is_left_out() -> None:
    rules = [Rule("tests/k/test_a.py", ("test_x[*-4]", "test_y"), "slow")]
    path = "/somewhere/tests/k/test_a.py"
    assert selection.left_out(path, "test_x[1-4]", rules) == ""
    assert selection.left_out(path, "test_y", rules) == ""
    assert selection.left_out(path, "test_x[1-8]", rules) == "slow"
    assert selection.left_out(path, "test_y[1-4]", rules) == "slow"
    assert selection.left_out("/tests/k/test_b.py", "test_x[1-8]", rules) == ""
    assert selection.left_out("/tests/k/my_test_a.py", "test_x[1-8]", rules) == ""


def test_every_rule_gives_its_reason(tmp_path: Path) -> None:
    assert all(rule.reason for rule in selection.load())
    bad = tmp_path / "selection.toml"
    bad.write_text('[[interpreted]]\nfile = "tests/a.py"\nkeep = ["test_x"]\n')
    with pytest.raises(ValueError, match="reason"):
        selection.load(bad)


def _planted(folder: Path, tests: str) -> tuple[subprocess.CompletedProcess, dict]:
    (folder / "test_planted.py").write_text(KERNEL + tests)
    report = folder / "report.json"
    words = ["-p", "series_harness.plugin", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"--rootdir={folder}", str(folder)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "SERIES_HARNESS_REPORT": str(report)},
    )
    return done, json.loads(report.read_text())


def test_a_wrong_kernel_fails_and_is_counted(tmp_path: Path) -> None:
    tests = "def test_right(): launch(2)\ndef test_wrong(): launch(3)\n"
    tests += "import pytest\n@pytest.mark.skip(reason='no such card')\n"
    tests += "def test_skipped(): launch(2)\n"
    done, report = _planted(tmp_path, tests)
    assert done.returncode == 1, done.stdout
    outcomes = {case.split("::")[-1]: o for case, o in report["outcomes"].items()}
    assert outcomes == {
        "test_right": "passed",
        "test_wrong": "failed",
        "test_skipped": "skipped",
    }
    assert report["launches"] == {"test_planted.doubled": 2}
    assert list(report["reasons"].values()) == ["no such card"]


def test_a_file_that_skips_or_breaks_as_a_whole_is_reported(tmp_path: Path) -> None:
    tests = "import pytest\npytest.skip('not here', allow_module_level=True)\n"
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    done, report = _planted(tmp_path, tests)
    assert done.returncode == 2, done.stdout
    assert sorted(report["outcomes"].values()) == ["failed", "skipped"]
    assert list(report["reasons"].values()) == ["not here"]
    assert report["launches"] == {}
