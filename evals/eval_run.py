# SPDX-License-Identifier: Apache-2.0
"""Serves one arm after the other and asks what is not answered yet."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from evals import client, gsm8k, gsm8k_gate, serve, serving
from evals.eval_outcome import Outcome, read_outcome
from evals.eval_plan import MAIN, PLAIN, Plan
from evals.eval_progress import Progress, Say, seldom, to_stderr
from evals.journal import Journal
from evals.proof import Arm
from evals.questions import Question, Reply, Task, sha
from evals.serve import Running
from series.errors import SeriesError

_FACTS = (
    "version",
    "torch",
    "python_version",
    "patch_ids",
    "commit",
    "settings",
    "decode_kernel",
    "ready_s",
)
"""What is kept of a server: no path of this machine."""

Line = dict[str, Any]
Step = Callable[[Arm, Running], None]


class OtherQuestionsError(SeriesError):
    """The arms would not be asked the same."""


class Runner:
    """One evaluation on its way."""

    def __init__(self, plan: Plan, journal: Journal, say: Say) -> None:
        self.plan, self.journal, self.say = plan, journal, say

    def lines(self, kind: str, **wanted: object) -> list[Line]:
        """Lines of the journal of a kind with these values."""
        return [
            line
            for line in self.journal.lines
            if line["kind"] == kind
            and all(line.get(key) == value for key, value in wanted.items())
        ]

    def left(self, arm: Arm, server: str) -> list[Step]:
        """What is still to be done of one arm on one of its servers."""
        found: list[Step] = []
        for name in self.plan.tasks if server == MAIN else ():
            if name == serving.NAME:
                continue
            if not self.lines("round", arm=arm.name, task=name):
                found.append(partial(self.ask, name))
            documented = name == gsm8k.NAME and self.plan.documented
            if documented and not self.lines("gate", arm=arm.name):
                found.append(self.gate)
        if serving.NAME in self.plan.tasks:
            for cell in self.plan.cells:
                done = self.lines("speed", arm=arm.name, cell=cell.name)
                if cell.plain == (server == PLAIN) and not done:
                    found.append(partial(self.speed, cell))
        return found

    def run(self) -> None:
        """Does all that is left; every answer is kept when it comes."""
        for arm in self.plan.arms:
            for server, words in self.plan.passes().items():
                steps = self.left(arm, server)
                if not steps:
                    continue
                self.say(f"{arm.name}: starting its server")
                with serve.serve(
                    arm,
                    self.plan.model,
                    self.plan.out / "servers" / arm.name / server,
                    args=words,
                    env=self.plan.server_env,
                    ready_s=self.plan.ready_s,
                    on_wait=seldom(self.say),
                ) as running:
                    self.keep_server(arm, server, running.facts)
                    for step in steps:
                        step(arm, running)

    def keep_server(self, arm: Arm, server: str, facts: Mapping[str, Any]) -> None:
        """Keeps which tree answered."""
        kept = {key: facts[key] for key in _FACTS if key in facts}
        self.journal.add({"kind": "server", "arm": arm.name, "server": server, **kept})
        kernel = facts.get("decode_kernel") or "the log names no decode kernel"
        patches = len(facts.get("patch_ids") or ())
        self.say(f"{arm.name}: ready, {patches} patches; {kernel}")

    def ask(self, name: str, arm: Arm, running: Running) -> None:
        """Asks one task's questions that this arm has not answered.

        Raises:
            OtherQuestionsError: Another arm was asked others.
        """
        task = self.plan.task(name, running)
        digest = task.digest()
        for line in self.lines("prompts", task=name):
            if line["digest"] != digest:
                raise OtherQuestionsError(
                    f"The questions of {name} are not those that {line['arm']} was "
                    "asked.",
                    "The data or the tokenizer changed: begin anew with another --out.",
                )
        if not self.lines("prompts", task=name, arm=arm.name):
            self.journal.add(
                {"kind": "prompts", "task": name, "arm": arm.name, "digest": digest}
            )
        done = {line["id"] for line in self.lines("answer", task=name, arm=arm.name)}
        targets = {item.question.id: item.target for item in task.items}
        left = [i.question for i in task.items if i.question.id not in done]
        progress = Progress(f"{arm.name}: {name}", len(targets), len(done), self.say)

        def keep(question: Question, reply: Reply) -> None:
            target = targets[question.id]
            self.journal.add(answer_line(task, arm, question.id, target, reply))
            progress.step()

        def fault(question: Question, kind: str) -> None:
            line = {"kind": "fault", "task": name, "arm": arm.name}
            self.journal.add({**line, "id": question.id, "what": kind})

        begun_s = time.monotonic()
        tally = client.ask(
            running.url,
            running.model,
            left,
            self.plan.pace(),
            keep=keep,
            check=running.check,
            fault=fault,
            total=len(targets),
        )
        self.journal.add(
            {
                "kind": "round",
                "task": name,
                "arm": arm.name,
                "asked": len(targets),
                "failed": tally.failed,
                "seconds": round(time.monotonic() - begun_s, 1),
                "in_this_run": len(left),
            }
        )

    def gate(self, arm: Arm, running: Running) -> None:
        """Runs the tree's own evaluator."""
        assert self.plan.data is not None
        self.say(f"{arm.name}: the tree's own gsm8k script, {self.plan.questions}")
        score = gsm8k_gate.run(
            arm,
            running.url,
            self.plan.data,
            self.plan.out / "programs" / arm.name / "gsm8k",
            self.plan.questions,
            max_tokens=self.plan.gsm8k_tokens,
            concurrency=self.plan.concurrency,
            limit_s=self.plan.limit_s,
            check=running.check,
        )
        self.journal.add({"kind": "gate", "arm": arm.name, **score.as_dict()})

    def speed(self, cell: serving.Cell, arm: Arm, running: Running) -> None:
        """Runs one cell of the serving benchmark."""
        self.say(f"{arm.name}: vllm bench serve {cell.name}, {cell.prompts} prompts")
        folder = self.plan.out / "programs" / arm.name / cell.name.replace("/", "-")
        speed = serving.run(
            arm,
            running.url,
            running.model,
            self.plan.model,
            cell,
            Path(str(folder).replace(" ", "-")),
            limit_s=self.plan.limit_s,
            check=running.check,
        )
        self.journal.add({"kind": "speed", "arm": arm.name, **speed.as_dict()})


def answer_line(task: Task, arm: Arm, id_: str, target: str, reply: Reply) -> Line:
    """What is kept of an answer."""
    read = task.read(reply.text)
    line: Line = {
        "kind": "answer",
        "task": task.name,
        "arm": arm.name,
        "id": id_,
        "read": read,
        "right": task.right(read, target),
        "text": sha(reply.text),
        "finish": reply.finish,
        "tokens": reply.tokens,
        "seconds": reply.seconds,
    }
    return {**line, "wrote": reply.text} if task.keeps_text else line


def run(
    plan: Plan,
    *,
    resume: bool = False,
    say: Say = to_stderr,
    again: str = "--resume goes on",
) -> Outcome:
    """Runs an evaluation, or what an earlier run of it left.

    Args:
        plan: What is asked.
        resume: Whether plan.out holds a run that is gone on with.
        say: Told how far it is.
        again: How the caller goes on with a run that was cut off, in words.

    Returns:
        What it shows; the report lies in plan.out / "eval.json".

    Raises:
        SeriesError: Something failed. Nothing is scored; what was answered is kept.
    """
    plan.require()
    path = plan.out / "journal.jsonl"
    start = Journal.resume if resume else Journal.start
    journal = start(path, plan.described())
    try:
        Runner(plan, journal, say).run()
    except (KeyboardInterrupt, SeriesError):
        count = sum(line["kind"] == "answer" for line in journal.lines)
        if count:
            kept = f"{count} answers are kept in {path}; {again}"
            say(f"nothing is scored; {kept}")
        raise
    except OSError as error:
        raise SeriesError(
            f"{plan.out} cannot be written: {error.strerror or error}.",
            f"Make room there; {again} with the answers that are kept.",
        ) from error
    return read_outcome(plan, journal.lines)
