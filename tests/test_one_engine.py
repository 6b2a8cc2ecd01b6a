# SPDX-License-Identifier: Apache-2.0
"""Switching one engine between arms, on a stand-in that keeps graphs as vLLM does."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("scipy", reason="the statistics need requirements/evals.txt")

from evals import ab, decode, engine, kinds, one_engine, seams
from evals.arms import ArmError
from evals.journal import JournalError
from evals.one_engine import EngineError, OneEngine
from evals.vllm_tree import TreeError

from .test_decode import put

COST = {"unfused": 10.0, "port": 8.0, "cuda_op": 9.0}
WORDS = ["gdn", "--arms", "unfused,port", "--requests", "1", "--one-process"]


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


def words(out: Path) -> list[str]:
    return [*WORDS, "--out", str(out), "--", "--blocks", "2"]


def outcome(out: Path) -> dict:
    """A report without what is of one call of the command."""
    report = json.loads((out / "ab.json").read_text())
    for run in report["runs"]:
        del run["seconds"]
    return {key: report[key] for key in report.keys() - {"date", "command"}}


def lines(out: Path) -> list[str]:
    return (out / "runs.jsonl").read_text().splitlines()


def cut(monkeypatch: pytest.MonkeyPatch, name: str, after: int) -> Callable[[], None]:
    """Interrupts a method once it was called so often; returns what ends that."""
    real, left = getattr(Workload, name), [after]

    def cut_off(self: Workload) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(self)

    monkeypatch.setattr(Workload, name, cut_off)
    return lambda: monkeypatch.setattr(Workload, name, real)


def forbid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError(f"{name} is not needed")

    monkeypatch.setattr(Workload, name, refuse)


def test_every_run_has_graphs_of_its_own_and_the_drafts_keep_theirs() -> None:
    one = made()
    one.warm()
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
    asked = ["gdn", "--requests", "1", "--one-process", "--out", str(tmp_path)]
    assert decode.main([*asked, "--", "--blocks", "2"]) == 0
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
    with pytest.raises(ab.NoVerdictError, match="port never called gdn_port"):
        decode.main(words(tmp_path))
    report = json.loads((tmp_path / "ab.json").read_text())
    assert len(report["runs"]) == 12
    (problem,) = report["void"]
    assert problem.startswith("port never called gdn_port (calls: ")
    assert "gdn_unfused 30" in problem
    (tmp_path / "ab.json").unlink()
    forbid(monkeypatch, "__init__")
    with pytest.raises(ab.NoVerdictError, match="port never called gdn_port"):
        decode.main([*words(tmp_path), "--resume"])
    assert outcome(tmp_path)["void"] == [problem]


def test_an_interrupted_comparison_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    again = cut(monkeypatch, "warm", 2)
    with pytest.raises(KeyboardInterrupt):
        decode.main(words(tmp_path))
    assert f"0 of 12 runs are kept in {tmp_path}" in capsys.readouterr().err
    again()
    again = cut(monkeypatch, "measure", 5)
    with pytest.raises(KeyboardInterrupt):
        decode.main([*words(tmp_path), "--resume"])
    assert len(lines(tmp_path)) == 1 + 5
    assert f"5 of 12 runs are kept in {tmp_path}" in capsys.readouterr().err
    again()
    assert decode.main([*words(tmp_path), "--resume"]) == 0
    assert "warming up port" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "ab.json").read_text())["runs"]) == 12
    assert ab.parse([]).resume is False


def test_what_arms_call_is_kept_at_once_and_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_once, out = tmp_path / "at once", tmp_path / "cut"
    assert decode.main(words(at_once)) == 0
    again = cut(monkeypatch, "witness", 2)
    with pytest.raises(KeyboardInterrupt):
        decode.main(words(out))
    said = capsys.readouterr().err
    assert "counting what control calls, 3 of 3" in said
    kept = "12 of 12 runs and the calls of 2 of 3 arms are kept in"
    assert f"{kept} {out / 'runs.jsonl'}; --resume goes on" in said
    assert len(lines(out)) == 1 + 12 + 2
    again()
    forbid(monkeypatch, "measure")
    assert decode.main([*words(out), "--resume"]) == 0
    told = capsys.readouterr()
    assert [line for line in told.err.splitlines() if "counting" in line] == [
        "counting what control calls, 3 of 3"
    ]
    assert "warming up" not in told.out
    assert outcome(out) == outcome(at_once)


def test_a_journal_of_runs_alone_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As journals were before they kept what arms call."""
    assert decode.main(words(tmp_path)) == 0
    before = outcome(tmp_path)
    runs = "".join(f"{line}\n" for line in lines(tmp_path)[: 1 + 12])
    assert "witness" not in runs
    (tmp_path / "runs.jsonl").write_text(runs)
    (tmp_path / "ab.json").unlink()
    capsys.readouterr()
    forbid(monkeypatch, "measure")
    assert decode.main([*words(tmp_path), "--resume"]) == 0
    assert "warming up" not in capsys.readouterr().out
    assert outcome(tmp_path) == before


def test_nothing_is_started_where_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert decode.main(words(tmp_path)) == 0
    before = outcome(tmp_path)
    (tmp_path / "ab.json").unlink()
    monkeypatch.setattr(decode, "one_engine_of", lambda _: pytest.fail("started"))
    assert decode.main([*words(tmp_path), "--resume"]) == 0
    assert outcome(tmp_path) == before


def test_another_machine_judges_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"device": "none", "sensor": "nvidia-ml-py"}
    monkeypatch.setattr(one_engine.machine, "gpu_facts", lambda _: facts)
    assert decode.main(words(tmp_path)) == 0
    before = outcome(tmp_path)
    assert before["sensor"] == "nvidia-ml-py"
    monkeypatch.setattr(decode, "one_engine_of", lambda _: pytest.fail("started"))
    monkeypatch.setattr(decode.sys, "executable", "/elsewhere/python")
    monkeypatch.setattr(decode, "ARM_SCRIPT", Path("/elsewhere/decode_arm.py"))
    assert decode.main([*words(tmp_path), "--resume"]) == 0
    assert outcome(tmp_path) == before
    with pytest.raises(JournalError, match="begun with another arms"):
        decode.main([*WORDS, "--layers", "4", *words(tmp_path)[6:], "--resume"])


def test_no_arm_is_asked_what_it_calls_before_the_last_run(tmp_path: Path) -> None:
    """A profiler that ran slows down what follows."""
    assert decode.main(words(tmp_path)) == 0
    kept = [json.loads(line) for line in lines(tmp_path)]
    assert ["values" in line for line in kept[1:]] == [True] * 12 + [False] * 3


def test_a_step_that_takes_no_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COST, "port", -0.1)
    with pytest.raises(ArmError, match="port measured"):
        decode.main(words(tmp_path))
