# SPDX-License-Identifier: Apache-2.0
"""Switching one engine between arms, on a stand-in that keeps graphs as vLLM does."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("scipy", reason="the statistics need requirements/evals.txt")

from evals import ab, decode, engine, kinds, one_engine, seams
from evals.arms import ArmError
from evals.one_engine import EngineError, OneEngine
from evals.vllm_tree import TreeError

from .test_decode import put

COST = {"unfused": 10.0, "port": 8.0, "cuda_op": 9.0}


class Layer:
    """A GDN layer: a seam, which the tests point at an arm, chooses its kernel."""

    chosen = ""

    def __init__(self) -> None:
        self.kernel = Layer.chosen

    def _choose_gdn_decode_kernel(self, config: object) -> None:
        self.kernel = Layer.chosen


class Manager:
    """Graphs by batch, each of which remembers the kernel that it was captured with."""

    def __init__(self) -> None:
        self.graphs: dict[int, str] = {}

    def release_graphs(self) -> None:
        self.graphs.clear()


class Runner:
    """Captures what its layers run, for the target and for the drafts."""

    def __init__(self, layers: list) -> None:
        self.layers = layers
        self.cudagraph_manager = Manager()
        self.captured = 0
        self.speculator: Any = SimpleNamespace(captured=0)
        context = dict(enumerate(layers))
        compilation = SimpleNamespace(static_forward_context=context)
        self.vllm_config = SimpleNamespace(compilation_config=compilation)
        self.capture_model()

    def capture_model(self) -> None:
        assert self.cudagraph_manager.graphs == {}
        kernels = {layer.kernel for layer in self.layers if isinstance(layer, Layer)}
        (kernel,) = kernels
        self.cudagraph_manager.graphs |= {1: kernel, 8: kernel}
        self.captured += 1
        if self.speculator is not None:
            self.speculator.captured += 1


class Llm:
    """An engine of two GDN layers and another one."""

    def __init__(self) -> None:
        self.runner = Runner([Layer(), object(), Layer()])

    def collective_rpc(self, call: Any) -> list:
        return [call(SimpleNamespace(model_runner=self.runner))]


class Workload:
    """Measures by what the graphs that are in place were captured with."""

    files: tuple[str, ...] = ()
    arms = tuple(COST)

    def __init__(self, args: Any, folder: Path) -> None:
        self.engine = Llm()
        self.ran: list[str] = []

    @staticmethod
    def force(arm: str) -> None:
        Layer.chosen = arm

    @staticmethod
    def switch(arm: str, layers: list, config: Any) -> None:
        Layer.chosen = arm
        seams.choose_gdn_again(layers, config)

    def now(self) -> str:
        (kernel,) = set(self.engine.runner.cudagraph_manager.graphs.values())
        # What runs outside of graphs must be of the same arm.
        assert {one.kernel for one in self.engine.runner.layers[::2]} == {kernel}
        return kernel

    def warm(self) -> None:
        self.ran.append(self.now())

    def measure(self) -> tuple[dict, dict]:
        value = COST[self.now()]
        return {"step_ms_1": value, "prefill_ms_1": 3.0}, {"step_ms_1": [value]}

    def witness(self) -> tuple[dict, dict]:
        names = (name for name in kinds.CALLS if name.startswith("gdn_"))
        calls = {name: float(name == f"gdn_{self.now()}") for name in names}
        return calls, {"step of 1": {"launches": {"GDN": 30.0}}}


@pytest.fixture(autouse=True)
def engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    class Set:
        def __init__(self, config: object) -> None:
            pass

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    put(monkeypatch, "vllm.config", set_current_vllm_config=Set)
    for name in ("gdn", "gate"):
        monkeypatch.setitem(one_engine.WORKLOADS, name, Workload)  # type: ignore[arg-type]
    monkeypatch.setattr(one_engine.machine, "require_gpu", lambda: None)
    monkeypatch.setattr(one_engine.machine, "gpu_facts", lambda _: {"device": "none"})
    monkeypatch.setattr(engine, "prepare", lambda: Path())
    monkeypatch.setattr(engine, "folder_of", lambda _: Path())


def made() -> OneEngine:
    Workload.force("unfused")
    kinds = {"unfused": "unfused", "port": "port", "control": "unfused"}
    return OneEngine(Workload(None, Path()), kinds, Path())  # type: ignore[arg-type]


def test_every_run_has_graphs_of_its_own_and_the_drafts_keep_theirs() -> None:
    one = made()
    runner = one.runner
    assert one.workload.ran == ["unfused", "port", "unfused"]  # type: ignore[union-attr]
    for name, kernel in (("port", "port"), ("control", "unfused"), ("port", "port")):
        before = runner.captured
        one.switch(name)
        assert one.workload.now() == kernel  # type: ignore[union-attr]
        assert runner.captured == before + 1
        # What the first run after a capture sets up is not that run's.
        assert one.workload.ran[-1] == kernel  # type: ignore[union-attr]
    assert runner.speculator.captured == 1


def test_drafts_come_back_after_a_capture_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = made()
    drafts = one.runner.speculator

    def fail() -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(one.runner, "capture_model", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        one_engine.capture(one.runner)
    assert one.runner.speculator is drafts


def test_an_engine_that_keeps_its_graphs_elsewhere_is_refused() -> None:
    llm = Llm()
    llm.runner.cudagraph_manager = None  # type: ignore[assignment]
    with pytest.raises(EngineError, match="keeps its decode graphs") as caught:
        one_engine.runner_of(llm)
    assert "--one-process" in caught.value.hint
    llm.runner.cudagraph_manager = Manager()
    with pytest.raises(EngineError, match="captured no graph"):
        one_engine.runner_of(llm)
    with pytest.raises(TreeError, match="no GDN layer"):
        seams.choose_gdn_again([object()], None)


def test_a_comparison_in_one_process(tmp_path: Path) -> None:
    words = ["gdn", "--requests", "1", "--one-process", "--out", str(tmp_path)]
    assert decode.main([*words, "--", "--blocks", "2"]) == 0
    report = json.loads((tmp_path / "ab.json").read_text())
    assert report["plan"]["one_process"] is True
    assert report["void"] == []
    found = report["compared"]["step_ms_1"]
    assert {name: one["verdict"] for name, one in found.items()} == {
        "port": "FASTER",
        "cuda_op": "FASTER",
        "control": "SAME",
    }
    assert found["port"]["ratio"] == pytest.approx(0.8)
    assert len(report["runs"]) == 16
    for run in report["runs"]:
        kind = "unfused" if run["arm"] == "control" else run["arm"]
        assert {name for name, count in run["calls"].items() if count} == {
            f"gdn_{kind}"
        }
    told = [run for run in report["runs"] if "step of 1" in run["notes"]]
    assert {run["arm"] for run in told} == {"unfused", "port", "cuda_op", "control"}
    assert len(told) == 4


def test_an_arm_that_ran_something_else_voids_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(self: Workload) -> tuple[dict, dict]:
        return {**dict.fromkeys(kinds.CALLS, 0.0), "gdn_unfused": 30.0}, {}

    monkeypatch.setattr(Workload, "witness", lie)
    words = ["gdn", "--arms", "unfused,port", "--requests", "1", "--one-process"]
    with pytest.raises(ab.NoVerdictError, match="port never called gdn_port"):
        decode.main([*words, "--out", str(tmp_path), "--", "--blocks", "2"])
    report = json.loads((tmp_path / "ab.json").read_text())
    assert len(report["runs"]) == 12
    (problem,) = report["void"]
    assert problem.startswith("port never called gdn_port (calls: ")
    assert "gdn_unfused 30" in problem


def test_an_interrupted_comparison_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["gdn", "--arms", "unfused,port", "--requests", "1", "--one-process"]
    words += ["--out", str(tmp_path), "--", "--blocks", "2"]
    real, left = Workload.measure, [5]

    def measure(self: Workload) -> tuple[dict, dict]:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(self)

    monkeypatch.setattr(Workload, "measure", measure)
    with pytest.raises(KeyboardInterrupt):
        decode.main(words)
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1 + 5
    monkeypatch.setattr(Workload, "measure", real)
    assert decode.main([*words, "--resume"]) == 0
    assert len(json.loads((tmp_path / "ab.json").read_text())["runs"]) == 12
    assert ab.parse([]).resume is False


def test_a_step_that_takes_no_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COST, "port", -0.1)
    words = ["gdn", "--arms", "unfused,port", "--requests", "1", "--one-process"]
    with pytest.raises(ArmError, match="port measured"):
        decode.main([*words, "--out", str(tmp_path), "--", "--blocks", "2"])
