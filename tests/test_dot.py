# SPDX-License-Identifier: Apache-2.0
"""The tiny dot's benchmark on a stand-in GPU: its processes, its record, its voids."""

import contextlib
import io
import json
import subprocess
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the benchmark's operands are torch's")
pytest.importorskip("scipy", reason="the statistics need requirements/evals.txt")
pytest.importorskip("triton", reason="the bounded dot is a Triton kernel")

from evals import cli, dot, dot_arms, machine, replay, sensors, vllm_tree  # noqa: E402
from tests.test_dot_arms import modules  # noqa: E402, F401

US = {"blas": 7.0, "eager": 6.0, dot_arms.TWO_LAUNCHES: 3.0, "triton": 1.4}
EVICTION_US = 20.0
WORDS = ["--forms", "output", "--dtypes", "bf16", "--k", "64", "--blocks", "3"]
AVAILABLE = dot_arms.available


class Gpu:
    """What the benchmark would do on a GPU; the arms compute on this CPU.

    Attributes:
        log: What was captured, sampled and profiled, and of which arm.
        ran: Kernels per call by arm.
        wrong: The arm whose result is wrong.
        later: By how much each graph of a row is faster than the one ahead of it.
        readings: How often the sensor was read.
    """

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.ran = {
            "blas": {"gemv": 2.0, "sigmoid": 1.0, "mul": 1.0},
            "eager": {"mul": 2.0, "sum": 1.0, "sigmoid": 1.0},
            dot_arms.TWO_LAUNCHES: {"_tiny_dot_kernel": 1.0, "mul": 1.0},
            "triton": {"_gated_output_kernel": 1.0},
        }
        self.wrong = ""
        self.later = 0.0
        self.readings = 0
        self.now = ""

    def available(self, case: dot_arms.Case) -> dict[str, dot_arms.Arm]:
        def played(arm: dot_arms.Arm) -> dot_arms.Arm:
            def call(*operands: Any) -> Any:
                self.now = arm.name
                return arm.call(*operands) * (9 if self.wrong == arm.name else 1)

            return dot_arms.Arm(arm.name, call, arm.claims, arm.alone)

        return {name: played(arm) for name, arm in AVAILABLE(case).items()}

    def capture(self, call: Any, sets: Any, calls: int, _: float) -> SimpleNamespace:
        self.now = ""
        cold = isinstance(call(sets[0]), tuple) or not self.now
        self.log.append(("capture", self.now))
        row = len([*takewhile(lambda one: one[0] == "capture", self.log[::-1])])
        factor = 1 - self.later * row
        return SimpleNamespace(arm=self.now, cold=cold, calls=calls, factor=factor)

    def sample(self, graph: SimpleNamespace) -> float:
        self.log.append(("sample", graph.arm))
        alone = EVICTION_US if graph.cold else 0.0
        return alone + US.get(graph.arm, 0.0) * graph.factor

    def kernels(self, graph: SimpleNamespace) -> dict[str, float]:
        self.log.append(("profile", graph.arm))
        return {name: n * graph.calls for name, n in self.ran[graph.arm].items()}

    def read(self) -> SimpleNamespace:
        self.readings += 1
        return SimpleNamespace(as_dict=lambda: {"celsius": 30 + self.readings})


def child(call: list[str], **_: Any) -> SimpleNamespace:
    """A process of the benchmark, in this one."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = dot.main(call[call.index("evals.dot") + 1 :])
    return SimpleNamespace(returncode=code, stdout=out.getvalue())


@pytest.fixture
def gpu(
    modules: dict[str, Any],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Gpu:
    played = Gpu()
    for source in dot.SOURCES:
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / source).write_text("")
    sensor = sensors.Sensor(played.read, "played")
    for owner, name, value in (
        (dot_arms, "available", played.available),
        (vllm_tree, "prepare", lambda: tmp_path),
        (machine, "require_gpu", lambda: None),
        (machine, "gpu_facts", lambda _: {"device": "a card"}),
        (sensors, "find_sensor", lambda: sensor),
        (replay, "capture", played.capture),
        (replay, "sample_us", played.sample),
        (replay, "kernels", played.kernels),
        (replay, "last_level_cache", lambda: 1 << 10),
        (subprocess, "run", child),
    ):
        monkeypatch.setattr(owner, name, value)
    return played


def run(tmp_path: Path, *words: str) -> tuple[int, dict]:
    path = tmp_path / "raw.json"
    code = cli.guarded(dot.main, [*WORDS, "--seed", "3", "--json", str(path), *words])
    return code, json.loads(path.read_text())


def test_a_run_and_its_record(gpu: Gpu, tmp_path: Path) -> None:
    code, found = run(tmp_path)
    assert code == 0
    assert found["void"] == []
    (case,) = found["cases"]
    assert (case["k"], case["dtype"], case["form"]) == (64, "bf16", "output")
    for kind in ("warm", "cold"):
        assert case[kind]["samples"]["triton"] == [pytest.approx(1.4)] * 6
        assert "eviction" not in case[kind]["samples"]
        compared = case[kind]["compared"]
        assert compared["triton"]["verdict"] == "FASTER"
        assert compared["triton"]["ratio"] == pytest.approx(0.2)
        assert (compared["control"]["base"], compared["control"]["verdict"]) == (
            "triton",
            "SAME",
        )
    assert case["differing"][dot_arms.TWO_LAUNCHES] == 0
    assert case["kernels"]["blas"] == gpu.ran["blas"]
    assert found["sensor"] == [{"celsius": 31 + n} for n in range(6)]


def test_a_graph_that_is_faster_as_long_as_it_lives_is_no_verdict(
    gpu: Gpu, tmp_path: Path
) -> None:
    gpu.later = 0.02
    _, found = run(tmp_path, "--no-cold")
    compared = found["cases"][0]["warm"]["compared"]
    assert compared["control"]["verdict"] in ("SAME", "AMBIGUOUS")
    assert compared["triton"]["verdict"] == "FASTER"


@pytest.mark.parametrize("arm", ["eager", "triton"])
def test_an_arm_that_disagrees_voids_the_run(
    gpu: Gpu, tmp_path: Path, arm: str
) -> None:
    gpu.wrong = arm
    code, found = run(tmp_path, "--no-cold")
    assert code == 1
    assert any(f"{arm} gives" in problem for problem in found["void"])


def test_an_arm_that_ran_other_kernels_voids_the_run(gpu: Gpu, tmp_path: Path) -> None:
    gpu.ran["triton"] = {"gemv": 1.0}
    code, found = run(tmp_path, "--no-cold")
    assert code == 1
    assert any("_gated_output_kernel ran 0 times" in one for one in found["void"])


def test_too_few_processes_give_times_and_no_verdict(gpu: Gpu, tmp_path: Path) -> None:
    code, found = run(tmp_path, "--blocks", "1", "--no-cold")
    assert code == 0
    compared = found["cases"][0]["warm"]["compared"]
    assert {one["verdict"] for one in compared.values()} == {"REFUSED"}


def test_a_process_that_fails_ends_the_run(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    failed = SimpleNamespace(returncode=1, stdout="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    assert cli.guarded(dot.main, WORDS) == 1
    assert "process 1 failed: see above." in capsys.readouterr().err


def test_a_failure_leaves_the_blocks_before_it_in_the_record(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def third_fails(call: list[str], **words: Any) -> SimpleNamespace:
        if call[-1] == "2":
            return SimpleNamespace(returncode=1, stdout="")
        return child(call, **words)

    monkeypatch.setattr(subprocess, "run", third_fails)
    code, found = run(tmp_path, "--no-cold")
    assert code == 1
    assert found["void"] == ["ended after 2 of 6 processes"]
    assert len(found["cases"][0]["warm"]["samples"]["triton"]) == 2
