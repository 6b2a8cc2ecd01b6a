# SPDX-License-Identifier: Apache-2.0
"""`make eval-smoke` says that the arms agree only when they do; servers are fakes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("lm_eval", reason="requirements/client.txt is not installed")
pytest.importorskip("scipy")

from evals import (
    agreement,
    cpu_wheel,
    eval_run,
    gsm8k_data,
    models,
    ready,
    smoke,
    smoke_plan,
    trees,
)
from evals.proof import Arm
from evals.serving import Cell
from series.errors import Exit, UsageError
from tests.fake_tree import fake_arm, lines, told


@pytest.fixture
def arms(tmp_path: Path) -> tuple[Arm, Arm]:
    return fake_arm(tmp_path, "stock"), fake_arm(tmp_path, "patched")


@pytest.fixture(autouse=True)
def _stage(
    arms: tuple[Arm, Arm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that is fetched or built is there; questions are few."""
    data = tmp_path / "data"
    data.mkdir()
    for name, count in (("train.jsonl", 6), ("test.jsonl", 40)):
        rows = [{"question": f"{n}?", "answer": f"so\n#### {n}"} for n in range(count)]
        (data / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in (models.TINY_MOE, models.SMOLLM2):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    monkeypatch.setattr(ready, "POLL_S", 0.02)
    monkeypatch.setattr(gsm8k_data, "prepare", lambda *words, **given: data)
    monkeypatch.setattr(cpu_wheel, "of_release", lambda *words: tmp_path / "a.whl")
    monkeypatch.setattr(cpu_wheel, "fetch", lambda *words: tmp_path / "b.whl")
    monkeypatch.setattr(trees, "arms", lambda *words, **given: arms)
    monkeypatch.setattr(models, "tiny_moe", lambda *words: tmp_path / models.TINY_MOE)
    monkeypatch.setattr(models, "smollm2", lambda *words: tmp_path / models.SMOLLM2)
    size = smoke_plan.Size(2, 6, 32, (512,), 2, (Cell(8, 4, 1, 2),))
    monkeypatch.setattr(smoke_plan, "FULL", size)
    monkeypatch.setattr(smoke_plan, "CI", replace(size, smollm2=3))
    monkeypatch.setattr(smoke, "HERE", tmp_path / "build")
    from evals import eval_outcome

    monkeypatch.setattr(eval_outcome, "machine_of", lambda arm: {"device": "a CPU"})


def test_arms_that_answer_alike_agree(
    arms: tuple[Arm, Arm], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert smoke.main([]) == Exit.DONE
    out = capsys.readouterr().out
    assert "the arms agree" in out
    assert "6 of 6" in out
    assert "cpu_triton_utils.py" in out
    for arm in arms:
        asked = [str(line.get("prompt", "")) for line in lines(arm, "asked")]
        assert sum(text.startswith("Question: ") for text in asked) == 2 + 6
    for name in (models.TINY_MOE, models.SMOLLM2):
        report = json.loads((tmp_path / "build/smoke" / name / "eval.json").read_text())
        servers = [line["patch_ids"] for line in report["servers"]]
        assert [len(ids) for ids in servers] == [0, 2]


def test_one_other_answer_is_told_and_fails(
    arms: tuple[Arm, Arm], capsys: pytest.CaptureFixture
) -> None:
    told(arms[1].tree, serve=["--wrong", "3"])
    assert smoke.main([]) == Exit.FAILURE
    said = capsys.readouterr()
    assert "the arms differ" in said.out
    assert "differs: smollm2-135m: gsm8k: " in said.err


def test_two_arms_that_are_broken_alike_do_not_pass(
    arms: tuple[Arm, Arm], capsys: pytest.CaptureFixture
) -> None:
    for arm in arms:
        told(arm.tree, serve=["--wrong", "1"])
    assert smoke.main(["--ci"]) == Exit.FAILURE
    assert "finds no needle" in capsys.readouterr().err


def test_an_interrupted_run_is_gone_on_with(
    arms: tuple[Arm, Arm], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = smoke.run, []

    def interrupted(plan, **words):
        outcome = real(plan, **words)
        calls.append((Path(plan.model).name, words.get("resume", False)))
        if len(calls) == 1:
            raise KeyboardInterrupt
        return outcome

    monkeypatch.setattr(smoke, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        smoke.main([])
    before = len(lines(arms[0], "asked"))
    assert smoke.main([]) == Exit.DONE
    assert calls[1:] == [(models.TINY_MOE, True), (models.SMOLLM2, False)]
    # The tiny model was not asked again.
    again = lines(arms[0], "asked")[before:]
    assert all(line["model"].startswith("stock-") for line in again)
    calls.clear()
    calls.append(("", False))
    assert smoke.main([]) == Exit.DONE
    assert calls[1:] == [(models.TINY_MOE, False), (models.SMOLLM2, False)]


def test_an_interrupted_run_names_its_own_way_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    real = eval_run.Runner.run

    def interrupted(runner):
        real(runner)
        raise KeyboardInterrupt

    monkeypatch.setattr(eval_run.Runner, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        smoke.main([])
    said = capsys.readouterr().err
    assert "answers are kept in" in said
    assert smoke.AGAIN in said
    assert "--resume" not in said


def test_what_an_older_run_left_of_another_plan_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    journal = tmp_path / "build/smoke" / models.TINY_MOE / "journal.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_text('{"plan": {"model": "another"}}\n')
    assert smoke.main([]) == Exit.DONE
    assert "beginning anew" in capsys.readouterr().err


def test_a_machine_that_the_wheel_is_not_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UsageError, match="aarch64"):
        smoke.main([])


def test_where_two_texts_part() -> None:
    assert agreement.apart("It is 12 now", "It is 13 now", 3) == (
        "from character 7: 's 12 n' / 's 13 n'"
    )
    assert agreement.apart("", "x") == "from character 0: '' / 'x'"


def test_all_cores_that_it_may_use_are_named() -> None:
    import os

    bound = smoke_plan.variables()["VLLM_CPU_OMP_THREADS_BIND"]
    assert {int(core) for core in bound.split(",")} == os.sched_getaffinity(0)
