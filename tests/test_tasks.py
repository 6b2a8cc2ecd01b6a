# SPDX-License-Identifier: Apache-2.0
"""The questions of each task, and what is read out of an answer."""

import csv
import json
from pathlib import Path

import pytest

from evals import gpqa, gsm8k, niah
from evals.gpqa import GpqaError
from evals.questions import sha
from series.errors import UsageError


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two files in the form of GSM8K's."""
    for name, count in (("train.jsonl", 7), ("test.jsonl", 4)):
        rows = [
            {"question": f"{name[0]}{n}?", "answer": f"w{n}\n#### 1,00{n}"}
            for n in range(count)
        ]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_a_gsm8k_prompt_has_five_worked_questions_ahead(data: Path) -> None:
    task = gsm8k.task(data, 2)
    assert [item.question.id for item in task.items] == ["gsm8k-0000", "gsm8k-0001"]
    assert [item.target for item in task.items] == ["1000", "1001"]
    prompt = task.items[1].question.prompt
    assert prompt.startswith("Question: t0?\nAnswer: w0\n#### 1,000\n\nQuestion: t1?\n")
    assert prompt.count("Question: ") == 6
    assert prompt.endswith("\n\nQuestion: t1?\nAnswer:")
    settings = task.items[0].question.settings
    assert settings["temperature"] == 0.0
    assert settings["until"] == ["Question", "Assistant:", "<|separator|>"]
    assert (settings["max_tokens"], settings["seed"]) == (256, 42)


SCRIPT = Path(__file__).parent.parent / "build/vllm/tests/evals/gsm8k/gsm8k_eval.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="build/vllm is not there: make apply")
def test_the_prompt_is_the_one_of_the_trees_script(data: Path) -> None:
    import ast

    tree = ast.parse(SCRIPT.read_text())
    wanted = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "_build_gsm8k_prompts"
    ]

    def load() -> tuple[list, list]:
        files = (data / "train.jsonl", data / "test.jsonl")
        return tuple(  # type: ignore[return-value]
            [json.loads(line) for line in file.read_text().splitlines()]
            for file in files
        )

    names: dict = {"load_gsm8k_data": load, "INVALID": None}
    names["get_answer_value"] = lambda text: 0
    exec(compile(ast.Module(wanted, []), str(SCRIPT), "exec"), names)
    prompts, _ = names["_build_gsm8k_prompts"](4, 5)
    assert prompts == [item.question.prompt for item in gsm8k.task(data, 4).items]


def test_a_tasks_digest_changes_with_any_question_and_shows_none(data: Path) -> None:
    first = gsm8k.task(data, 4)
    assert first.digest() == gsm8k.task(data, 4).digest()
    assert first.digest() != gsm8k.task(data, 3).digest()
    assert first.digest() != gsm8k.task(data, 4, 255).digest()
    text = (data / "test.jsonl").read_text()
    (data / "test.jsonl").write_text(text.replace("1,003", "1,004"))
    assert first.digest() != gsm8k.task(data, 4).digest()


def table(path: Path, rows: list[list[str]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["Record ID", *gpqa.COLUMNS], *rows])
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows = [[f"r{n}", f"Why\n{n}?", f"r{n}", "b", "c", "d, e"] for n in range(40)]
    return table(tmp_path / "gpqa.csv", rows)


def test_gpqa_asks_each_question_twice_with_choices_shuffled(questions: Path) -> None:
    task = gpqa.task(questions, 42)
    assert len(task.items) == 80
    assert len({item.question.id for item in task.items}) == 80
    assert not task.keeps_text
    for item in task.items:
        prompt = item.question.prompt
        asked = prompt.split("Why\n")[1].split("?")[0]
        assert f"\n{item.target}) r{asked}" in prompt.replace("\n\n", "\n")
        assert {"A) ", "B) ", "C) ", "D) "} <= {
            line[:3] for line in prompt.splitlines()
        }
        assert item.question.chat
        assert item.question.settings["temperature"] == 0.6
        assert item.question.settings["top_p"] == 0.95
        assert item.question.settings["top_k"] == 20
        assert item.question.settings["max_tokens"] == 24576
    targets = [item.target for item in task.items]
    assert {targets.count(letter) > 8 for letter in "ABCD"} == {True}
    assert targets[:40] != targets[40:]
    assert len({item.question.settings["seed"] for item in task.items}) > 70


def test_gpqa_is_the_same_for_a_seed_and_in_part(questions: Path) -> None:
    assert gpqa.task(questions, 42).digest() == gpqa.task(questions, 42).digest()
    assert gpqa.task(questions, 42).digest() != gpqa.task(questions, 43).digest()
    whole, part = gpqa.task(questions, 42), gpqa.task(questions, 42, count=3)
    assert list(part.items) == [*whole.items[:3], *whole.items[40:43]]


def test_nothing_of_gpqa_shows_in_an_id(questions: Path) -> None:
    task = gpqa.task(questions, 42)
    assert task.items[0].question.id == f"gpqa-{sha('Why' + chr(10) + '0?')}-0"
    assert "Why" not in task.digest() + "".join(i.question.id for i in task.items)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("So\nAnswer: C", "C"),
        ("**Answer: B**", "B"),
        ("**Answer:** D", "D"),
        ("Answer: (A)", "A"),
        ("The ANSWER is B", "B"),
        ("The answer is a mystery.", ""),
        ("Answer: $\\boxed{C}$", "C"),
        ("The answer is \\text{D}.", "D"),
        ("Answer: A\nNo: Answer: B", "B"),
        ("<think>Answer: A</think>\nAnswer: D", "D"),
        ("<think>Answer: A", "A"),
        ("<think>x</think>", ""),
        ("Answer: Because", ""),
        ("Answer: E", ""),
        ("A", ""),
        ("", ""),
    ],
)
def test_the_letter_that_an_answer_ends_in(text: str, letter: str) -> None:
    assert gpqa.read(text) == letter


def test_a_file_that_is_not_gpqas(tmp_path: Path) -> None:
    with pytest.raises(GpqaError, match="No such file"):
        gpqa.load(tmp_path / "none.csv")
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(GpqaError, match="no column Question, Correct Answer"):
        gpqa.load(tmp_path / "a.csv")
    rows = [["r", "q", "a", "b", "c", "d"], ["r", "q", "a", "b", "", "d"]]
    with pytest.raises(GpqaError, match="row 2 lacks"):
        gpqa.load(table(tmp_path / "b.csv", rows))
    with pytest.raises(GpqaError, match="no row"):
        gpqa.load(table(tmp_path / "c.csv", []))
    (tmp_path / "d.csv").write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(GpqaError, match="no text"):
        gpqa.load(tmp_path / "d.csv")


TEXTS = niah.Texts(
    noise="The lamp is lit. The door is shut.",
    needle="A number, of the {type_needle_v} for {key}: {value}.",
    frame="Find a {type_needle_v}.\n{context}\nWhich {type_needle_v} for {query}?",
)


def words(text: str) -> int:
    return len(text.split())


def test_niah_hides_a_number_at_every_depth() -> None:
    task = niah.task(words, lengths=(600, 1200), texts=TEXTS)
    assert len(task.items) == 2 * 11 * 3
    assert len({item.question.id for item in task.items}) == 66
    assert len({item.target for item in task.items}) == 66
    for item in task.items:
        prompt = item.question.prompt
        assert prompt.count(item.target) == 1
        assert 10**6 <= int(item.target) < 10**7
        length = int(item.question.id.split("-")[1])
        used = words(prompt) + niah.MAX_TOKENS + niah.CHAT_TOKENS
        assert length - 10 < used <= length
        assert item.question.settings["temperature"] == 0.0
        kwargs = item.question.settings["chat_template_kwargs"]
        assert kwargs == {"enable_thinking": False}
    places = [
        item.question.prompt.splitlines().index(line) - 1
        for item in task.items[33::3]
        for line in item.question.prompt.splitlines()
        if item.target in line
    ]
    count = len(task.items[33].question.prompt.splitlines()) - 3
    assert places == [round(step / 10 * count) for step in range(11)]


def test_niah_without_a_chat_template_leads_into_the_answer() -> None:
    task = niah.task(
        words, lengths=(600,), depths=3, samples=1, chat=False, texts=TEXTS
    )
    assert len(task.items) == 3
    assert task.items[0].question.prompt.endswith(" is")
    assert not task.items[0].question.chat
    assert "chat_template_kwargs" not in task.items[0].question.settings


def test_niah_is_the_same_every_time() -> None:
    one = niah.task(words, lengths=(600,), texts=TEXTS)
    assert one.digest() == niah.task(words, lengths=(600,), texts=TEXTS).digest()


def test_a_length_too_short_for_niah() -> None:
    with pytest.raises(UsageError, match="--lengths 200: too short"):
        niah.task(words, lengths=(200,), texts=TEXTS)


def test_the_needle_is_looked_for_among_the_numbers() -> None:
    assert niah.right(niah.read("It is 1,234,567, not 12."), "1234567")
    assert niah.right(niah.read("**1234567**"), "1234567")
    assert not niah.right(niah.read("12345678"), "1234567")
    assert not niah.right(niah.read("none"), "1234567")


def test_niahs_texts_are_those_that_lm_eval_ships() -> None:
    pytest.importorskip("lm_eval", reason="requirements/client.txt is not installed")
    texts = niah.published()
    assert "grass" in texts.noise
    filled = niah.made(texts, 3, 0.5, "key", "1234567")
    assert "{" not in filled
    assert filled.count(texts.noise) == 3
    assert filled.splitlines()[-1].startswith(
        "What is the special magic number for key"
    )
