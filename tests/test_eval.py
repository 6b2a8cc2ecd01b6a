# SPDX-License-Identifier: Apache-2.0
"""A whole evaluation against real servers, child processes that fail as told."""

import csv
import errno
import json
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("lm_eval", reason="requirements/client.txt is not installed")
pytest.importorskip("scipy")

from evals import eval as command
from evals import eval_run, gpqa, ready, record, serving, views
from evals.client import InfrastructureError, Pace
from evals.eval_plan import Plan
from evals.eval_run import OtherQuestionsError, run
from evals.journal import Journal, JournalError
from evals.proof import Arm, ServerDied, ServerError
from evals.serving import Cell
from evals.tree_program import ProgramError
from evals.verdict import Verdict
from series.errors import Exit, SeriesError, UsageError
from tests.fake_tree import fake_arm, lines, told

QUESTIONS = 24


def quiet(line: str) -> None:
    """Says nothing."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Files in the form of GSM8K's; the answer to `17?` is 17."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name, count in (("train.jsonl", 6), ("test.jsonl", 40)):
        rows = [{"question": f"{n}?", "answer": f"so\n#### {n}"} for n in range(count)]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def plan(tmp_path: Path, data: Path) -> Plan:
    """Both arms, a model's folder and a few questions."""
    model = tmp_path / "a model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    return Plan(
        arms=(fake_arm(tmp_path, "stock"), fake_arm(tmp_path, "patched")),
        model=str(model),
        out=tmp_path / "out",
        questions=QUESTIONS,
        data=data,
        documented=False,
        concurrency=4,
        timeout_s=20.0,
        ready_s=60.0,
        allowed=0.0,
    )


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "POLL_S", 0.02)
    pace = Plan.pace
    monkeypatch.setattr(
        Plan, "pace", lambda self: replace(pace(self), backoff_s=0.01, tries=2)
    )


def asked(arm: Arm) -> Counter[str]:
    """How often each question reached the arm's server."""
    found = lines(arm, "asked")
    return Counter(
        one["prompt"] for one in found if one.get("prompt", "").startswith("Question")
    )


def test_two_arms_that_answer_alike(plan: Plan) -> None:
    said: list[str] = []
    outcome = run(plan, say=said.append)
    one = outcome.compared["gsm8k"]["patched"]
    assert one.verdict is Verdict.SAME
    assert (one.pairs.n, one.pairs.both) == (QUESTIONS, QUESTIONS)
    assert outcome.same_answers
    assert (outcome.differing, outcome.problems) == ([], [])
    for arm in plan.arms:
        assert len(asked(arm)) == QUESTIONS
        assert set(asked(arm).values()) == {1}
    first, second = asked(plan.arms[0]), asked(plan.arms[1])
    assert first == second
    assert [one["arm"] for one in outcome.servers] == ["stock", "patched"]
    assert [len(one["patch_ids"]) for one in outcome.servers] == [0, 2]
    assert any("24 of 24" in line for line in said)


def test_arms_that_answer_otherwise(plan: Plan) -> None:
    told(plan.arms[1].tree, serve=["--wrong", "2"])
    outcome = run(plan, say=quiet)
    one = outcome.compared["gsm8k"]["patched"]
    assert one.verdict is Verdict.WORSE
    assert one.pairs.first == len(one.other_answers) == len(outcome.differing) > 5
    assert len(outcome.problems) == 1
    assert "gsm8k: patched:" in outcome.problems[0]
    differs = outcome.differing[0]
    number = int(differs.id.rpartition("-")[2])
    assert differs.first.endswith(f"#### {number}")
    assert differs.text.endswith(f"#### {number + 1}")


def test_a_control_shows_the_models_own_noise(plan: Plan) -> None:
    stock = plan.arms[0]
    control = Arm("control", stock.tree, stock.python, stock.patch_ids)
    outcome = run(replace(plan, arms=(*plan.arms, control)), say=quiet)
    assert set(outcome.compared["gsm8k"]) == {"patched", "control"}
    assert set(asked(stock).values()) == {2}


def test_a_server_killed_mid_run_scores_nothing_and_the_run_goes_on(plan: Plan) -> None:
    patched = plan.arms[1]
    told(patched.tree, serve=["--fault", "die:after/11", "--seconds", "0.01"])
    said: list[str] = []
    with pytest.raises(ServerDied, match="patched server ended with 9"):
        run(plan, say=said.append)
    assert "nothing is scored" in said[-1]
    assert not (plan.out / "eval.json").exists()
    told(patched.tree)
    with pytest.raises(JournalError, match="holds runs already"):
        run(plan, say=quiet)
    outcome = run(plan, resume=True, say=quiet)
    assert outcome.same_answers
    # The stock arm was not served again, and no answered question was asked again.
    assert [one["arm"] for one in outcome.servers] == ["stock", "patched", "patched"]
    assert set(asked(plan.arms[0]).values()) == {1}
    answered = Counter(
        line["prompt"]
        for line in lines(patched, "asked")
        if not line["fault"] and line["prompt"].startswith("Question")
    )
    assert len(answered) == QUESTIONS
    kept = len(outcome.answers["gsm8k"]["patched"])
    assert kept == QUESTIONS
    # What was under way when it died may have been answered without being heard.
    assert sum(answered.values()) <= QUESTIONS + plan.concurrency


def test_a_finished_run_asks_nothing_again(plan: Plan) -> None:
    first = run(plan, say=quiet)
    second = run(plan, resume=True, say=quiet)
    assert second == first
    assert set(asked(plan.arms[0]).values()) == {1}


@pytest.mark.usefixtures("default_signals")
def test_an_interrupt_loses_no_answer(plan: Plan) -> None:
    for arm in plan.arms:
        told(arm.tree, serve=["--seconds", "0.05"])
    path = plan.out / "journal.jsonl"

    def interrupt() -> None:
        while not path.exists() or path.read_text().count('"answer"') < 7:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run(plan, say=quiet)
    kept = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    before = {line["id"] for line in kept if line["kind"] == "answer"}
    assert 7 <= len(before) < QUESTIONS
    seen = asked(plan.arms[0])
    outcome = run(plan, resume=True, say=quiet)
    assert outcome.same_answers
    later = asked(plan.arms[0])
    later.subtract(seen)
    again = {prompt for prompt, times in later.items() if times > 0}
    for id_ in before:
        number = int(id_.rpartition("-")[2])
        assert not any(prompt.endswith(f" {number}?\nAnswer:") for prompt in again)


def test_a_request_that_times_out_is_not_scored(plan: Plan) -> None:
    told(plan.arms[0].tree, serve=["--fault", "hang:share/6"])
    with pytest.raises(InfrastructureError, match="timeout"):
        run(replace(plan, timeout_s=1.0), say=quiet)
    told(plan.arms[0].tree)
    outcome = run(plan, resume=True, say=quiet)
    assert outcome.same_answers
    # What failed before the run went on is not forgotten.
    assert outcome.rounds["gsm8k"]["stock"]["faults"]["timeout"] >= 2
    assert outcome.rounds["gsm8k"]["patched"]["faults"] == {}
    assert len(outcome.answers["gsm8k"]["stock"]) == QUESTIONS


def test_few_questions_may_stay_without_an_answer(plan: Plan) -> None:
    told(plan.arms[1].tree, serve=["--fault", "error:share/9"])
    outcome = run(replace(plan, allowed=0.5), say=quiet)
    found = outcome.rounds["gsm8k"]["patched"]
    assert found["failed"]
    assert found["faults"] == {"status 500": 2 * len(found["failed"])}
    one = outcome.compared["gsm8k"]["patched"]
    assert one.pairs.n == one.pairs.both == QUESTIONS - len(found["failed"])
    assert one.verdict is Verdict.SAME


def test_a_model_folder_that_is_none(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "a model/config.json").unlink()
    with pytest.raises(ServerError, match="holds no model"):
        run(plan, say=quiet)
    assert not (plan.arms[0].tree / "asked.jsonl").exists()
    # Once the model is there, nothing is in the way.
    (tmp_path / "a model/config.json").write_text("{}")
    assert run(plan, say=quiet).same_answers


def test_other_questions_than_before_are_refused(plan: Plan, data: Path) -> None:
    told(plan.arms[1].tree, serve=["--fault", "die:after/5"])
    with pytest.raises(ServerDied):
        run(plan, say=quiet)
    text = (data / "test.jsonl").read_text().replace("17?", "18?")
    (data / "test.jsonl").write_text(text)
    told(plan.arms[1].tree)
    with pytest.raises(OtherQuestionsError, match="not those that stock was asked"):
        run(plan, resume=True, say=quiet)


def test_another_plan_is_not_gone_on_with(plan: Plan) -> None:
    run(plan, say=quiet)
    with pytest.raises(JournalError, match="another questions, seed"):
        run(replace(plan, questions=5, seed=1), resume=True, say=quiet)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"questions": 0}, "0 questions"),
        ({"questions": 1320}, "1320 questions"),
        ({"data": None}, "needs its data"),
        ({"tasks": ("gpqa",)}, "gpqa needs a file"),
        ({"tasks": ()}, "No task"),
        ({"arms": ()}, "Two arms"),
    ],
)
def test_what_is_wrong_is_said_before_a_server_starts(
    plan: Plan, change: dict, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        run(replace(plan, **change), say=quiet)
    assert not plan.out.exists()


def test_the_trees_own_script_and_its_threshold(plan: Plan) -> None:
    configs = plan.arms[0].tree / "tests/evals/gsm8k/configs"
    text = "model_name: Some/A Model\naccuracy_threshold: 0.84\ntolerance: 0.03\n"
    (configs / "A-Model.yaml").write_text(text)
    (configs / "A-Model-DP-longer.yaml").write_text(text.replace("0.84", "0.5"))
    (configs / "B.yaml").write_text(text.replace("A Model", "B"))
    told(plan.arms[0].tree, script={"accuracy": 0.815})
    told(plan.arms[1].tree, script={"accuracy": 0.805})
    outcome = run(replace(plan, documented=True), say=quiet)
    assert outcome.gate is not None
    assert (outcome.gate.threshold, outcome.gate.source) == (0.84, "A-Model.yaml")
    assert outcome.scores["stock"].passes(outcome.gate)
    assert not outcome.scores["patched"].passes(outcome.gate)
    assert outcome.problems == [
        "the tree's gsm8k gate fails patched: 0.8050, at least 0.8100 is wanted"
    ]
    words = lines(plan.arms[0], "script")[0]
    assert words[words.index("--num-questions") + 1] == str(QUESTIONS)
    assert words[words.index("--max-concurrency") + 1] == "4"
    assert words[words.index("--max-tokens") + 1] == "256"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({"prints": "Error calling vLLM API (TimeoutError): "}, "1 requests .* failed"),
        ({"rc": 3}, "gsm8k_eval.py of the stock tree ended with 3"),
        ({"writes": False}, "left no result"),
    ],
)
def test_a_script_that_failed_is_void(plan: Plan, script: dict, words: str) -> None:
    told(plan.arms[0].tree, script=script)
    with pytest.raises(ProgramError, match=words):
        run(replace(plan, documented=True), say=quiet)
    told(plan.arms[0].tree)
    outcome = run(replace(plan, documented=True), resume=True, say=quiet)
    assert set(outcome.scores) == {"stock", "patched"}


def test_serving_cells_run_on_the_server_that_they_want(plan: Plan) -> None:
    cells = (serving.GATE, Cell(64, 16, 2, 10))
    speculation = '{"method": "mtp"}'
    words = ("--speculative-config", speculation, "--max-num-seqs=64", "-x")
    asked_for = replace(plan, tasks=("serve",), cells=cells, server_args=words)
    told(plan.arms[1].tree, bench={"spec_decode_acceptance_length": 2.5})
    outcome = run(asked_for, say=quiet)
    found = {one.cell: one for one in outcome.speeds["patched"]}
    assert list(found) == ["64/16 x2", "100/128 x1 plain"]
    assert (found["64/16 x2"].itl, found["64/16 x2"].step) == (2.0, 5.0)
    calls = lines(plan.arms[0], "bench")
    assert [call[call.index("--num-prompts") + 1] for call in calls] == ["10", "10"]
    assert all("--ignore-eos" in call for call in calls)
    assert all(call[call.index("--tokenizer") + 1] == plan.model for call in calls)
    assert [one["server"] for one in outcome.servers] == 2 * ["main", "plain"]
    assert asked_for.passes() == {
        "main": words,
        "plain": ("-x", "--max-num-seqs", "1"),
    }


def test_a_benchmark_whose_requests_failed_is_void(plan: Plan) -> None:
    told(plan.arms[0].tree, bench={"completed": 0, "failed": 10})
    cell = Cell(64, 16, 2, 10)
    with pytest.raises(ProgramError, match="0 of 10 requests succeeded"):
        run(replace(plan, tasks=("serve",), cells=(cell,)), say=quiet)


def test_a_server_that_dies_under_the_benchmark(plan: Plan) -> None:
    told(plan.arms[0].tree, serve=["--fault", "die:always"], bench={"asks": True})
    cell = Cell(64, 16, 2, 10)
    with pytest.raises(ServerDied, match="stock server ended with 9"):
        run(replace(plan, tasks=("serve",), cells=(cell,)), say=quiet)


def test_a_program_that_takes_too_long_is_ended(plan: Plan) -> None:
    told(plan.arms[0].tree, script={"sleeps": 60})
    with pytest.raises(ProgramError, match="took longer than 1 s"):
        run(replace(plan, documented=True, limit_s=1.0), say=quiet)


def test_a_server_that_counts_no_tokens(plan: Plan) -> None:
    told(plan.arms[0].tree, serve=["--no-tokens"])
    with pytest.raises(SeriesError, match="did not count a text's tokens"):
        run(replace(plan, tasks=("niah",), lengths=(600,)), say=quiet)


def test_a_disk_that_is_full(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Journal.add

    def full(self: Journal, line: dict) -> None:
        if len(self.lines) > 9:
            raise OSError(errno.ENOSPC, "No space left on device")
        add(self, line)

    monkeypatch.setattr(Journal, "add", full)
    with pytest.raises(SeriesError, match="cannot be written: No space left") as error:
        run(plan, say=quiet)
    assert "--resume" in error.value.hint
    monkeypatch.setattr(Journal, "add", add)
    assert run(plan, resume=True, say=quiet).same_answers


def test_nothing_of_gpqa_is_kept(
    plan: Plan, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    path = tmp_path / "gpqa.csv"
    with path.open("w", newline="") as file:
        rows = [
            [f"secret{n} 17?", f"sesame{n}", "b", "c", "d"] for n in range(QUESTIONS)
        ]
        csv.writer(file).writerows([gpqa.COLUMNS, *rows])
    told(plan.arms[1].tree, serve=["--fault", "error:first"])
    wide = replace(plan, tasks=("gpqa",), gpqa_file=path, concurrency=64)
    outcome = run(wide, say=print)
    outcome.report(["make", "eval", str(path)], {})
    command.show(outcome)
    assert len(outcome.answers["gpqa"]["stock"]) == 2 * QUESTIONS
    captured = capfd.readouterr()
    texts = [captured.out, captured.err]
    texts += [file.read_text() for file in plan.out.rglob("*") if file.is_file()]
    assert len(texts) > 5
    assert not any("secret" in text or "sesame" in text for text in texts)
    assert not any("It is so" in text for text in texts)


def test_niah_is_laid_out_by_the_servers_tokenizer(plan: Plan) -> None:
    asked_for = replace(plan, tasks=("niah",), lengths=(600,), depths=3, samples=2)
    outcome = run(asked_for, say=quiet)
    assert len(outcome.answers["niah"]["stock"]) == 6
    assert outcome.compared["niah"]["patched"].verdict is Verdict.SAME
    chats = [one for one in lines(plan.arms[0], "asked") if "messages" in one]
    assert chats[0]["chat_template_kwargs"] == {"enable_thinking": False}


def test_the_report_is_a_record_and_names_no_path(plan: Plan, tmp_path: Path) -> None:
    whole = replace(
        plan, documented=True, tasks=("gsm8k", "serve"), cells=(serving.GATE,)
    )
    outcome = run(whole, say=quiet)
    path = outcome.report(["make", "eval", "--model", plan.model], {})
    text = path.read_text()
    assert str(tmp_path) not in text
    assert '"a model"' in text
    kept = json.loads(text)
    assert kept["bench"] == "eval"
    assert kept["tasks"]["gsm8k"]["compared"]["patched"]["verdict"] == "SAME ANSWERS"
    said = {
        **kept,
        "name": "e",
        "kind": "eval",
        "data": kept,
        "patches": {},
        "files": {},
    }
    said["base"] = {"release": "0.32.0", "commit": "c"}
    series = record.Series({"release": "0.32.0", "commit": "c"}, {}, {}, {})
    found = {table.name: table for table in views.tables(said, series)}
    assert set(found) == {"e", "e:gate", "e:serve", "e:requests"}
    assert "SAME ANSWERS" in found["e"].markdown()
    assert "no threshold in the tree" in found["e:gate"].markdown()


def test_the_command(
    plan: Plan,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr(command, "arms_of", lambda args: plan.arms)
    monkeypatch.setattr(command.gsm8k_data, "prepare", lambda *a, **k: data)
    words = ["--model", plan.model, "--questions", "12", "--out", str(plan.out)]
    words += ["--no-script", "--concurrency", "4"]
    assert command.main(words) == Exit.DONE
    out = capsys.readouterr().out
    assert "SAME ANSWERS" in out
    assert "Both arms answer all 12 questions alike" in out
    assert str(plan.out / "eval.json") in out
    told(plan.arms[1].tree, serve=["--add", "1"])
    words[words.index(str(plan.out))] = str(plan.out) + "2"
    assert command.main(words) == Exit.FAILURE
    captured = capsys.readouterr()
    assert "DIFFER: WORSE" in captured.out
    assert "differs: gsm8k: patched" in captured.err


def test_words_that_are_wrong(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No model"):
        command.main([])
    with pytest.raises(UsageError, match="--tasks: mmlu"):
        command.main(["--model", plan.model, "--tasks", "mmlu"])
    with pytest.raises(UsageError, match="--cells"):
        command.main(["--model", plan.model, "--cells", "1x"])
    (tmp_path / "d").mkdir()
    (tmp_path / "d/train.jsonl").write_text("{}\n")
    with pytest.raises(SeriesError, match="cut off"):
        command.main(["--model", plan.model, "--data", str(tmp_path / "d")])


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("2048/256x8", Cell(2048, 256, 8, 32)),
        ("100/128x1", Cell(100, 128, 1, 10)),
        ("64/16x2x5", Cell(64, 16, 2, 5)),
        ("plain:100/128x1x10", serving.GATE),
    ],
)
def test_a_cell_is_read(text: str, cell: Cell) -> None:
    assert serving.cells_of(text) == (cell,)


@pytest.mark.parametrize("text", ["", "x", "1/2", "1/2x0", "a/bxc", "1/2x3x4x5", "1x2"])
def test_what_is_no_cell(text: str) -> None:
    with pytest.raises(UsageError, match="is no cell"):
        serving.cells_of(text)


def test_progress_says_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 5.0, 30.0, 60.0])
    monkeypatch.setattr(eval_run.time, "monotonic", lambda: next(clock))
    said: list[str] = []
    progress = eval_run.Progress("stock: gsm8k", 6, 3, said.append)
    for _ in range(3):
        progress.step()
    assert said == [
        "stock: gsm8k: 5 of 6, about 0.2 min left",
        "stock: gsm8k: 6 of 6",
    ]
    assert Pace().concurrency == 16
