# SPDX-License-Identifier: Apache-2.0
"""The whole GDN benchmark on a stand-in GPU: what it writes, and what voids it."""

import json
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the benchmark's inputs are torch tensors")
pytest.importorskip("scipy", reason="the statistics need requirements/evals.txt")

from evals import (  # noqa: E402
    cli,
    gdn,
    gdn_arms,
    gdn_case,
    gdn_compile,
    gdn_sweep,
    machine,
    replay,
    sensors,
)
from evals import vllm_tree as tree  # noqa: E402
from evals.gdn_arms import Arm  # noqa: E402
from evals.gdn_case import Buffers, Case  # noqa: E402

US = {"unfused": 29.0, "port": 8.0}
WORDS = ["--shapes", "1x2", "--states", "fp32", "--requests", "1,2", "--tokens", "2"]


class Graph:
    """Stands for a captured graph: remembers its arm and how it was made."""

    def __init__(self, arm: str, sets: int, calls: int) -> None:
        self.arm, self.sets, self.calls = arm, sets, calls


class Gpu:
    """What the benchmark would do on a GPU, played with the reference itself.

    Attributes:
        arms: The arms that are there.
        ran: Kernels per call by arm.
        log: Graphs that were captured, and arms that were sampled or profiled.
    """

    def __init__(self) -> None:
        self.log: list[tuple[str, str, int]] = []
        self.ran = {"unfused": {"old": 1.0, "copy": 7.0}, "port": {"new": 1.0}}
        self.arms = {
            "unfused": Arm("unfused", self.call("unfused"), {"^old": 1}, alone=False),
            "port": Arm("port", self.call("port"), {"^new": 1}),
        }
        self.wrong = ""

    def call(self, arm: str) -> Callable[[Buffers], torch.Tensor]:
        def run(d: Buffers) -> torch.Tensor:
            case = Case((1, 2), "fp32", len(d["num_accepted_tokens"]), 2)
            outputs, states = gdn_case.reference(case, d)
            d["state"][d["state_indices"].long()] = states.float()
            d["out"].copy_(outputs.reshape(d["out"].shape))
            return d["out"] * (2 if self.wrong == arm else 1)

        run.arm = arm  # type: ignore[attr-defined]
        return run

    def capture(self, call, sets, calls, sample_ms) -> Graph:
        arm = getattr(call, "arm", "port")
        self.log.append(("capture", arm, len(sets)))
        return Graph(arm, len(sets), calls)

    def sample(self, graph: Graph) -> float:
        self.log.append(("sample", graph.arm, graph.sets))
        return US[graph.arm] * (1.1 if graph.sets > 1 else 1.0)

    def kernels(self, graph: Graph) -> dict[str, float]:
        self.log.append(("profile", graph.arm, graph.sets))
        return {name: n * graph.calls for name, n in self.ran[graph.arm].items()}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    played, make = Gpu(), gdn_case.make
    source = tmp_path / (gdn_arms.PORT.replace(".", "/") + ".py")
    source.parent.mkdir(parents=True)
    source.write_text("")
    facts = {"device": "a card", "torch": "2", "triton": "3"}
    for module, name, value in (
        (machine, "require_gpu", lambda: None),
        (machine, "gpu_facts", lambda sensor: facts),
        (tree, "prepare", lambda: tmp_path),
        (gdn_compile, "everything", lambda *_: None),
        (gdn_arms, "available", lambda op, other: (played.arms, ["merged: no"])),
        (gdn_case, "make", lambda case, device, seed: make(case, "cpu", seed)),
        (replay, "capture", played.capture),
        (replay, "sample_us", played.sample),
        (replay, "kernels", played.kernels),
        (replay, "copy_bandwidth", lambda: 4.3e12),
        (replay, "last_level_cache", lambda: 1 << 20),
        (sensors, "find_sensor", lambda: sensors.Sensor(None, "none")),
    ):
        monkeypatch.setattr(module, name, value)
    return played


def run(tmp_path: Path, *words: str) -> tuple[int, dict]:
    path = tmp_path / "raw.json"
    code = cli.guarded(gdn.main, [*WORDS, "--json", str(path), *words])
    return code, json.loads(path.read_text())


def test_a_run_and_its_record(
    gpu: Gpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = run(tmp_path, "--seed", "5")
    assert code == 0
    assert [case["requests"] for case in found["cases"]] == [1, 2]
    case = found["cases"][0]
    assert case["cold"]["samples"]["port"] == [pytest.approx(8.8)] * 12
    assert case["warm"]["compared"]["port"]["verdict"] == "FASTER"
    assert case["warm"]["compared"]["control"]["base"] == "port"
    assert case["warm"]["compared"]["control"]["verdict"] == "SAME"
    assert case["cold_bytes"] > 4 << 20
    assert case["agreement"]["unfused"]["problem"] == ""
    assert case["kernels"] == gpu.ran
    assert found["options"]["seed"] == 5
    assert found["bench"] == "gdn"
    assert list(found["sources"]) == [gdn_arms.PORT.replace(".", "/") + ".py"]
    assert found["void"] == []
    out = capsys.readouterr().out
    assert "29.0 / 31.9" in out
    assert "left out: merged: no" in out


def test_a_graph_that_is_faster_as_long_as_it_lives_is_no_verdict(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = gpu.sample

    def capture(*args) -> Graph:
        graph = gpu.capture(*args)
        kinds = [kind for kind, _, _ in reversed(gpu.log)]
        in_a_row = sum(1 for _ in takewhile("capture".__eq__, kinds))
        graph.factor = 1 - 0.03 * in_a_row
        return graph

    monkeypatch.setattr(replay, "capture", capture)
    monkeypatch.setattr(replay, "sample_us", lambda graph: plain(graph) * graph.factor)
    _, found = run(tmp_path, "--blocks", "3")
    for kind in ("warm", "cold"):
        compared = found["cases"][0][kind]["compared"]
        assert compared["control"]["verdict"] in ("SAME", "AMBIGUOUS")
        assert compared["port"]["verdict"] == "FASTER"


def test_the_profiler_comes_after_all_timing(gpu: Gpu, tmp_path: Path) -> None:
    run(tmp_path)
    kinds = [kind for kind, _, _ in gpu.log]
    assert "sample" not in kinds[kinds.index("profile") :]


def test_arms_take_turns_in_mirrored_order(gpu: Gpu, tmp_path: Path) -> None:
    run(tmp_path, "--blocks", "2")
    samples = [arm for kind, arm, sets in gpu.log if kind == "sample" and sets == 1]
    # The control is the port once more.
    first = samples[: 2 * 2 * 3]
    assert first[:6] == ["unfused", "port", "port", "port", "port", "unfused"]
    assert first[6:] == ["port", "port", "unfused", "unfused", "port", "port"]


def test_an_arm_that_disagrees_voids_the_run(
    gpu: Gpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu.wrong = "port"
    code, found = run(tmp_path)
    assert code == 1
    assert "port: the output is off" in capsys.readouterr().err
    assert len(found["void"]) == 2
    assert not any(kind == "sample" for kind, _, _ in gpu.log)


@pytest.mark.parametrize(
    ("arm", "ran", "says"),
    [
        ("port", {}, "port: it launched no kernel"),
        ("port", {"old": 1.0, "new": 1.0}, "a kernel of another arm"),
        ("port", {"new": 1.0, "fill": 1.0}, "besides what it claims"),
        ("unfused", {"new": 1.0}, "ran 0 times a call"),
    ],
)
def test_an_arm_that_ran_other_kernels_voids_the_run(
    gpu: Gpu,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arm: str,
    ran: dict[str, float],
    says: str,
) -> None:
    gpu.ran[arm] = ran
    code, found = run(tmp_path, "--requests", "1")
    assert code == 1
    assert says in capsys.readouterr().err
    assert len(found["void"]) == 1


def test_the_sweep_names_the_rules_choice_and_the_best(
    gpu: Gpu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    launched = []
    port = SimpleNamespace(
        VALUE_TILES=(32, 64),
        pick_value_tile=lambda pairs, units: 64,
        _launch=lambda **words: launched.append(port.pick_value_tile(2, 1)),
    )
    monkeypatch.setattr(gdn_sweep.importlib, "import_module", lambda name: port)
    said = {("fp32", 2, "t64/w2"): "OutOfResources: registers"}
    monkeypatch.setattr(gdn_sweep, "precompile", lambda *_: said)
    code, found = run(tmp_path, "--sweep", "--warps", "2,4", "--requests", "1")
    assert code == 0
    swept = found["cases"][0]["sweep"]
    assert set(swept["samples"]) == {"rule", "t32", "t64", "t32/w2", "t32/w4", "t64/w4"}
    assert (swept["chosen"], swept["rule_over_best"]) == (64, 1.0)
    assert swept["kernel"] == "port"
    assert launched
    assert "t64/w2 fp32, 2 tokens, left out: OutOfResources" in capsys.readouterr().err


def test_an_arm_that_is_not_there_is_refused(
    gpu: Gpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.guarded(gdn.main, [*WORDS, "--arms", "port,merged"]) == 2
    assert "Known: unfused, port" in capsys.readouterr().err
    code, found = run(tmp_path, "--arms", "port")
    assert code == 0
    assert set(found["cases"][0]["cold"]["samples"]) == {"port", "control"}


def test_a_grid_counts_kernels_once_for_each_kind_of_layer(
    gpu: Gpu, tmp_path: Path
) -> None:
    code, found = run(tmp_path, "--quick")
    assert code == 0
    assert ["kernels" in case for case in found["cases"]] == [True, False]
    assert len(found["cases"][0]["cold"]["samples"]["port"]) == 2


def test_an_interrupted_run_keeps_what_it_measured(
    gpu: Gpu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measure = gdn.measure

    def once(case: Case, *rest: object) -> dict:
        if case.requests == 2:
            raise KeyboardInterrupt
        return measure(case, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(gdn, "measure", once)
    code, found = run(tmp_path)
    assert code == 130
    assert [case["requests"] for case in found["cases"]] == [1]
    assert found["void"] == ["interrupted after 1 of 2 cases"]
    assert "interrupted after 1 of 2" in capsys.readouterr().err


def test_a_failure_leaves_the_cases_before_it_in_the_record(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = gdn.measure

    def once(case: Case, *rest: object) -> dict:
        if case.requests == 2:
            raise RuntimeError("CUDA error: an illegal memory access")
        return measure(case, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(gdn, "measure", once)
    path = tmp_path / "raw.json"
    with pytest.raises(RuntimeError, match="illegal memory access"):
        gdn.main([*WORDS, "--json", str(path)])
    found = json.loads(path.read_text())
    assert [case["requests"] for case in found["cases"]] == [1]
    assert found["void"] == ["ended after 1 of 2 cases"]


@pytest.mark.parametrize(
    ("requests", "sets", "calls"), [(1, 1, 250), (1, 3, 252), (512, 1, 20)]
)
def test_a_replay_lasts_however_short_its_calls(
    requests: int, sets: int, calls: int
) -> None:
    case = Case((16, 32), "fp32", requests)
    assert case.calls(sets, 4.3e12, 1.0) == calls
    assert case.calls(sets, 4.3e12, 0.0) == (20 if sets == 1 else 21)
