# SPDX-License-Identifier: Apache-2.0
"""What an evaluation asks, of which arms, and in which way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals import gpqa, gsm8k, niah, serving
from evals.client import ALLOWED, Pace
from evals.local_http import ReplyError, ask
from evals.proof import Arm
from evals.questions import Task
from evals.serve import Running, require_model
from evals.serving import Cell
from evals.verdict import MARGIN
from series.errors import SeriesError, UsageError

TASKS = (gsm8k.NAME, gpqa.NAME, niah.NAME, serving.NAME)
MAIN, PLAIN = "main", "plain"
SEED = 42


@dataclass(frozen=True)
class Plan:
    """An evaluation.

    Attributes:
        arms: What is served, one after the other; all others are compared with the
            first. An arm named control is the first one again: what differs there is
            the model's own noise.
        model: A model's folder, or its name on the hub.
        out: The folder for everything that comes of it.
        tasks: Of TASKS.
        questions: Of gsm8k, and of gpqa at most.
        data: The folder with GSM8K's checked files.
        gpqa_file: The user's copy of GPQA Diamond.
        documented: Whether the tree's own GSM8K evaluator runs too.
        gsm8k_tokens: Limit of an answer.
        gpqa_tokens: Limit of an answer, what is thought included.
        lengths: Of niah's texts, in tokens.
        depths: Of niah's needle.
        samples: Of each length and depth.
        chat: Whether the model has a chat template, for gpqa and niah.
        cells: Of serve.
        server_args: More words for `vllm serve`.
        server_env: Variables for it.
        concurrency: Questions under way at a time.
        timeout_s: Of one request.
        limit_s: Of one program of the tree.
        ready_s: Until a server answers.
        allowed: Share of questions that may stay without an answer.
        margin: Half width within which two scores are the same.
        threshold: Of the documented arm, where the tree has none for the model.
        seed: Of gpqa's shuffles and sampling.
    """

    arms: tuple[Arm, ...]
    model: str
    out: Path
    tasks: tuple[str, ...] = (gsm8k.NAME,)
    questions: int = gsm8k.ALL
    data: Path | None = None
    gpqa_file: Path | None = None
    documented: bool = True
    gsm8k_tokens: int = gsm8k.MAX_TOKENS
    gpqa_tokens: int = gpqa.MAX_TOKENS
    lengths: tuple[int, ...] = niah.LENGTHS
    depths: int = niah.DEPTHS
    samples: int = niah.SAMPLES
    chat: bool = True
    cells: tuple[Cell, ...] = serving.PUBLISHED
    server_args: tuple[str, ...] = ()
    server_env: Mapping[str, str] = field(default_factory=dict)
    concurrency: int = 16
    timeout_s: float = 600.0
    limit_s: float = 6 * 3600.0
    ready_s: float = 1800.0
    allowed: float = ALLOWED
    margin: float = MARGIN
    threshold: float | None = None
    seed: int = SEED

    def pace(self) -> Pace:
        """How questions are asked."""
        return Pace(self.concurrency, self.timeout_s, allowed=self.allowed)

    def described(self) -> dict[str, Any]:
        """What decides the answers: a resumed run must have the same."""
        return {
            "arms": {arm.name: list(arm.patch_ids) for arm in self.arms},
            "model": Path(self.model).name,
            "tasks": list(self.tasks),
            "questions": self.questions,
            "documented": self.documented,
            "gsm8k_tokens": self.gsm8k_tokens,
            "gpqa_tokens": self.gpqa_tokens,
            "niah": [list(self.lengths), self.depths, self.samples],
            "chat": self.chat,
            "cells": [cell.name for cell in self.cells],
            "prompts": [cell.prompts for cell in self.cells],
            "server_args": list(self.server_args),
            "server_env": dict(self.server_env),
            "concurrency": self.concurrency,
            "seed": self.seed,
        }

    def require(self) -> None:
        """Refuses what can be refused before the first server starts.

        Raises:
            UsageError: An arm, a file or a number is missing or wrong.
            SeriesError: A file is not what it should be.
        """
        self.require_inputs()
        names = [arm.name for arm in self.arms]
        if len(set(names)) != len(names) or len(names) < 2:
            raise UsageError(f"Two arms are needed, with names of their own: {names}.")

    def require_inputs(self) -> None:
        """Refuses what needs no tree to be refused; see `require`."""
        require_model(self.model)
        if not self.tasks:
            raise UsageError("No task is named.", f"Known: {', '.join(TASKS)}.")
        if gsm8k.NAME in self.tasks:
            if not 1 <= self.questions <= gsm8k.ALL:
                raise UsageError(
                    f"{self.questions} questions: gsm8k has 1 to {gsm8k.ALL}."
                )
            if self.data is None:
                raise UsageError("gsm8k needs its data.", "Name its folder: DATA=…")
        if gpqa.NAME in self.tasks:
            if self.gpqa_file is None:
                raise UsageError(
                    "gpqa needs a file: its terms forbid keeping one here.",
                    "Get gpqa_diamond.csv from its authors, and name it: --gpqa FILE",
                )
            gpqa.load(self.gpqa_file)
        if niah.NAME in self.tasks:
            niah.published()

    def passes(self) -> dict[str, tuple[str, ...]]:
        """The words of each server that an arm needs, by the server's name."""
        found = {}
        if set(self.tasks) - {serving.NAME} or not all(c.plain for c in self.cells):
            found[MAIN] = self.server_args
        if serving.NAME in self.tasks and any(cell.plain for cell in self.cells):
            found[PLAIN] = tuple(serving.without_speculation(self.server_args))
        return found

    def task(self, name: str, running: Running) -> Task:
        """The questions of a task; niah's are laid out with the server's tokenizer."""
        if name == gsm8k.NAME:
            assert self.data is not None
            return gsm8k.task(self.data, self.questions, self.gsm8k_tokens)
        if name == gpqa.NAME:
            assert self.gpqa_file is not None
            return gpqa.task(
                self.gpqa_file,
                self.seed,
                count=self.questions,
                max_tokens=self.gpqa_tokens,
                chat=self.chat,
            )
        return niah.task(
            counter(running),
            lengths=self.lengths,
            depths=self.depths,
            samples=self.samples,
            chat=self.chat,
        )


def counter(running: Running) -> Callable[[str], int]:
    """Counts a text's tokens by asking the server."""

    def count(text: str) -> int:
        body = {"model": running.model, "prompt": text}
        try:
            return int(ask(f"{running.url}/tokenize", body, timeout_s=120)["count"])
        except (ReplyError, OSError, KeyError, TypeError, ValueError) as error:
            running.check()
            raise SeriesError(
                f"The server did not count a text's tokens: {error!r}.",
                f"See {running.log}.",
            ) from error

    return count
