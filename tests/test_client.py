# SPDX-License-Identifier: Apache-2.0
"""Asking a real server, a child process, that fails in every way a server can."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("lm_eval", reason="requirements/client.txt is not installed")

from evals.client import InfrastructureError, Pace, RefusedError, Tally, ask
from evals.questions import Question, Reply
from tests.fakes import Fake, GoneError, fake

QUICK = Pace(concurrency=4, timeout_s=20.0, backoff_s=0.01, allowed=0.0)


def questions(count: int, **settings: object) -> list[Question]:
    return [Question(f"q{n}", f"What is {n}?", False, settings) for n in range(count)]


def asked_of(
    server: Fake, found: list[Question], pace: Pace = QUICK
) -> tuple[Tally, dict[str, Reply]]:
    kept: dict[str, Reply] = {}

    def keep(question: Question, reply: Reply) -> None:
        assert question.id not in kept
        kept[question.id] = reply

    tally = ask(server.url, "fake", found, pace, keep=keep, check=server.check)
    return tally, kept


def test_every_question_is_answered_once(tmp_path: Path) -> None:
    with fake(tmp_path) as server:
        tally, kept = asked_of(server, questions(30))
        assert (tally.answered, tally.failed, tally.faults) == (30, [], {})
        assert kept["q17"].text == " It is so.\n#### 17"
        assert (kept["q17"].finish, kept["q17"].tokens) == ("stop", 7)
        assert len(server.asked()) == 30
        assert max(one["at_once"] for one in server.asked()) <= 4


def test_what_is_sent_is_what_the_question_says(tmp_path: Path) -> None:
    settings = {"temperature": 0.0, "max_tokens": 9, "until": ["Q"], "seed": 42}
    with fake(tmp_path) as server:
        asked_of(server, [Question("a", "1", False, settings)])
        more = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_tokens": 5}
        more |= {"seed": 7, "chat_template_kwargs": {"enable_thinking": False}}
        asked_of(server, [Question("b", "é 2", True, more)])
        first, second = server.asked()
    assert first["path"] == "/v1/completions"
    assert (first["prompt"], first["stop"], first["seed"]) == ("1", ["Q"], 42)
    assert (first["temperature"], first["max_tokens"]) == (0.0, 9)
    assert second["path"] == "/v1/chat/completions"
    assert second["messages"] == [{"role": "user", "content": "é 2"}]
    assert {key: second[key] for key in more} == more
    assert settings["max_tokens"] == 9


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("error", "status 500"),
        ("drop", "ServerDisconnectedError"),
        ("garbage", "malformed reply"),
        ("other", "malformed reply"),
        ("abort", "aborted"),
    ],
)
def test_a_fault_is_mended_by_asking_again(
    tmp_path: Path, kind: str, name: str
) -> None:
    # Two at a time, so that no streak of faults ends it.
    with fake(tmp_path, "--fault", f"{kind}:first") as server:
        pace = Pace(concurrency=8, backoff_s=0.01, allowed=0.0)
        tally, kept = asked_of(server, questions(10), pace)
        assert (tally.answered, tally.failed) == (10, [])
        assert tally.faults == {name: 10}
        assert kept["q3"].text.endswith("#### 3")
        assert len(server.asked()) == 20


def test_a_fault_that_stays_is_no_wrong_answer(tmp_path: Path) -> None:
    with fake(tmp_path, "--fault", "error:share/5") as server:
        pace = Pace(concurrency=4, tries=3, backoff_s=0.01, allowed=0.5)
        tally, kept = asked_of(server, questions(40), pace)
    assert tally.failed
    assert sorted([*kept, *tally.failed]) == sorted(q.id for q in questions(40))
    assert tally.faults == {"status 500": 3 * len(tally.failed)}


def test_too_many_faults_void_the_run(tmp_path: Path) -> None:
    with fake(tmp_path, "--fault", "error:share/5") as server:
        pace = Pace(concurrency=4, tries=2, backoff_s=0.01, allowed=0.01)
        with pytest.raises(
            InfrastructureError, match="stay without an answer"
        ) as error:
            asked_of(server, questions(40), pace)
    assert "status 500" in error.value.what
    assert "Nothing is scored" in error.value.hint


def test_a_server_that_only_fails_is_given_up_early(tmp_path: Path) -> None:
    with fake(tmp_path, "--fault", "error:always") as server:
        pace = Pace(concurrency=4, tries=50, backoff_s=0.001, allowed=0.01)
        with pytest.raises(InfrastructureError, match="questions in a row"):
            asked_of(server, questions(400), pace)
        assert len(server.asked()) < 200


def test_a_request_that_times_out_is_a_fault(tmp_path: Path) -> None:
    with fake(tmp_path, "--fault", "hang:share/4") as server:
        pace = Pace(concurrency=4, timeout_s=0.5, tries=2, backoff_s=0.01, allowed=1.0)
        tally, kept = asked_of(server, questions(8), pace)
    assert tally.failed
    assert set(tally.faults) == {"timeout"}
    assert len(kept) == 8 - len(tally.failed)


def test_waiting_for_a_turn_is_not_timed(tmp_path: Path) -> None:
    # 30 answers of 0.1 s one after the other: the last waits longer than a timeout.
    with fake(tmp_path, "--one-at-a-time", "--seconds", "0.1") as server:
        pace = Pace(concurrency=2, timeout_s=2.5, tries=1, backoff_s=0.01, allowed=0.0)
        tally, _ = asked_of(server, questions(30), pace)
    assert (tally.answered, tally.faults) == (30, {})


def test_a_refused_question_is_not_asked_again(tmp_path: Path) -> None:
    with fake(tmp_path, "--no-template") as server:
        with pytest.raises(RefusedError, match="question a: 400") as error:
            asked_of(server, [Question("a", "1", True)])
        assert "--no-chat" in error.value.hint
        assert len(server.asked()) == 1


def test_a_server_that_dies_ends_it_with_its_own_error(tmp_path: Path) -> None:
    with (
        fake(tmp_path, "--fault", "die:after/10") as server,
        pytest.raises(GoneError, match="ended with 9"),
    ):
        asked_of(server, questions(100))


@pytest.mark.usefixtures("default_signals")
def test_an_interrupt_ends_it_and_keeps_what_was_answered(tmp_path: Path) -> None:
    kept: list[str] = []
    with fake(tmp_path, "--fault", "hang:after/3") as server:

        def interrupt() -> None:
            while len(kept) < 3:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            ask(
                server.url,
                "fake",
                questions(8),
                QUICK,
                keep=lambda question, reply: kept.append(question.id),
            )
    assert len(kept) == 3


def test_what_the_model_wrote_is_not_logged(
    tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    with fake(tmp_path, "--fault", "abort:first") as server:
        asked_of(server, questions(3))
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
