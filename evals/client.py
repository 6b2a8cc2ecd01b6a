# SPDX-License-Identifier: Apache-2.0
"""Asks a server questions through lm-eval's client, and tells faults from answers.

lm-eval makes the request and reads the reply; which questions are asked, at what pace
and what becomes of a fault is decided here: a request that fails is asked again, and if
it fails for good, it is counted as a fault of the infrastructure, never as an answer.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import aiohttp
import tenacity

from evals.lm_client import FaultError, clients, message
from evals.questions import Question, Reply
from series.errors import SeriesError

TRIES = 4
BACKOFF_S = 1.0
STREAK = 8
ALLOWED = 0.01
"""Share of the questions that may stay without an answer before a run is void."""
_BUSY = (408, 425, 429)


class InfrastructureError(SeriesError):
    """So many requests failed that what was answered shows nothing."""


class RefusedError(SeriesError):
    """The server understood a request and refused it: asking again is no use."""


@dataclass(frozen=True)
class Pace:
    """How a server is asked.

    Attributes:
        concurrency: Requests under way at a time. What waits for its turn is not sent,
            so that waiting never counts against the timeout.
        timeout_s: Of one request, from when it is sent.
        tries: How often a request is made before its question counts as failed.
        backoff_s: Before the second try; doubled before each further one.
        allowed: Share of questions that may fail.
    """

    concurrency: int = 16
    timeout_s: float = 600.0
    tries: int = TRIES
    backoff_s: float = BACKOFF_S
    allowed: float = ALLOWED


@dataclass
class Tally:
    """What became of the requests of one round of questions.

    Attributes:
        answered: Questions answered.
        failed: Ids of those that stay without an answer.
        faults: Failed requests by kind, those that a later try mended included.
    """

    answered: int = 0
    failed: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)


class _Round:
    """One round of questions to one server."""

    def __init__(
        self,
        url: str,
        model: str,
        pace: Pace,
        total: int,
        check: Callable[[], None],
        keep: Callable[[Question, Reply], None],
        fault: Callable[[Question, str], None],
    ) -> None:
        self.clients = clients(url, model)
        self.pace, self.check, self.keep, self.fault = pace, check, keep, fault
        self.may_fail = int(pace.allowed * total)
        self.tally = Tally()
        self.in_vain: set[str] = set()
        self.turn = asyncio.Semaphore(pace.concurrency)

    async def request(
        self, session: aiohttp.ClientSession, question: Question
    ) -> Reply:
        """One request, its faults told apart."""
        try:
            async with self.turn:
                sent_s = time.monotonic()
                found = await self.clients[question.chat].amodel_call(
                    session,
                    asyncio.Semaphore(),
                    [message(question)],
                    generate=True,
                    gen_kwargs=dict(question.settings),
                )
                seconds = time.monotonic() - sent_s
            text, finish, tokens = found[0]
        except aiohttp.ClientResponseError as error:
            if 400 <= error.status < 500 and error.status not in _BUSY:
                raise RefusedError(
                    f"The server refused question {question.id}: {error.status} "
                    f"{error.message}.",
                    "Its log says why; often the model's context is too short for the "
                    "prompt and the answer, or it has no chat template (--no-chat).",
                ) from error
            raise FaultError(f"status {error.status}") from error
        except TimeoutError as error:
            raise FaultError("timeout") from error
        except (aiohttp.ClientError, OSError) as error:
            raise FaultError(type(error).__name__) from error
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise FaultError("malformed reply") from error
        return Reply(text, finish, tokens, round(seconds, 3))

    def noticed(self, state: tenacity.RetryCallState, question: Question) -> None:
        """Counts a fault; ends everything where the server is gone or silent."""
        assert state.outcome is not None
        kind = str(state.outcome.exception())
        self.tally.faults[kind] += 1
        self.fault(question, kind)
        self.in_vain.add(question.id)
        self.check()
        if len(self.in_vain) > max(STREAK, 2 * self.pace.concurrency, self.may_fail):
            raise InfrastructureError(
                f"The server failed {len(self.in_vain)} questions in a row ({kind}).",
                "Nothing is scored. See the server's log; --resume goes on.",
            )

    async def answer(self, session: aiohttp.ClientSession, question: Question) -> None:
        """Asks until there is an answer, or for the last time."""
        tries = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(FaultError),
            stop=tenacity.stop_after_attempt(self.pace.tries),
            wait=tenacity.wait_exponential_jitter(
                multiplier=self.pace.backoff_s, max=60, jitter=self.pace.backoff_s
            ),
            after=partial(self.noticed, question=question),
            reraise=True,
        )
        try:
            reply: Reply = await tries(self.request, session, question)
        except FaultError as error:
            self.tally.failed.append(question.id)
            if len(self.tally.failed) > self.may_fail:
                raise InfrastructureError(
                    f"{len(self.tally.failed)} questions stay without an answer "
                    f"({error}), {self.may_fail} may: the run is void.",
                    "Nothing is scored. See the server's log; --resume asks those "
                    "questions again.",
                ) from error
            return
        self.in_vain.clear()
        self.tally.answered += 1
        self.keep(question, reply)


def ask(
    url: str,
    model: str,
    questions: Sequence[Question],
    pace: Pace,
    *,
    keep: Callable[[Question, Reply], None],
    check: Callable[[], None] = lambda: None,
    fault: Callable[[Question, str], None] = lambda question, kind: None,
    total: int | None = None,
) -> Tally:
    """Asks a server every question once; what it answers is kept at once.

    Args:
        url: Of the server, without a trailing slash.
        model: The name it serves.
        questions: Asked in this order.
        pace: How.
        keep: Called with each answer as it comes.
        check: Called after every failed request; raises where the server is gone.
        fault: Called with every failed request's kind.
        total: Questions of the whole run, of which some may have been asked before.

    Raises:
        InfrastructureError: More failed than may.
        RefusedError: The server refused one.
    """
    whole = total or len(questions)
    round_ = _Round(url, model, pace, whole, check, keep, fault)
    return asyncio.run(_ask(round_, questions))


async def _ask(round_: _Round, questions: Sequence[Question]) -> Tally:
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=round_.pace.timeout_s),
        # The semaphore alone limits: a queue of the connector's would be timed.
        connector=aiohttp.TCPConnector(limit=0),
    ) as session:
        tasks = [
            asyncio.create_task(round_.answer(session, question))
            for question in questions
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return round_.tally
