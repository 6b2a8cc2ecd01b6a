# SPDX-License-Identifier: Apache-2.0
"""What an evaluation's journal shows, once everything is answered."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from evals import cli, gpqa, gsm8k, gsm8k_gate, machine, serving, verdict
from evals.eval_machine import machine_of
from evals.eval_plan import Plan
from evals.gsm8k_gate import Gate, Score
from evals.serving import Speed
from evals.verdict import Answer, Comparison

REPORT = "eval.json"
CONTROL = "control"


class Differing(NamedTuple):
    """A question to which an arm wrote another text than the first arm.

    Attributes:
        first: What the first arm wrote, "" where it may not be kept.
        text: What this arm wrote.
    """

    task: str
    id: str
    arm: str
    first: str
    text: str


@dataclass(frozen=True)
class Outcome:
    """What the arms answered, and what that shows.

    Attributes:
        plan: What was asked.
        answers: By task and arm.
        compared: By task and arm, each against the first arm.
        rounds: What became of the requests, by task and arm.
        gate: The tree's threshold for the model, if it has one.
        scores: By arm, of the tree's own GSM8K evaluator.
        speeds: By arm.
        servers: Each server that was started.
        texts: What the model wrote, by task, arm and question; none of gpqa's.
    """

    plan: Plan
    answers: dict[str, dict[str, list[Answer]]]
    compared: dict[str, dict[str, Comparison]]
    rounds: dict[str, dict[str, dict[str, Any]]]
    gate: Gate | None
    scores: dict[str, Score]
    speeds: dict[str, list[Speed]]
    servers: list[dict[str, Any]] = field(default_factory=list)
    texts: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """What differs or fails; empty where the arms agree as far as was asked."""
        found = []
        for task, by_arm in self.compared.items():
            for arm, one in by_arm.items():
                if one.verdict.differs:
                    found.append(f"{task}: {arm}: {one.words()}")
        if self.gate:
            least = self.gate.threshold - self.gate.tolerance
            for arm, score in self.scores.items():
                if not score.passes(self.gate):
                    found.append(
                        f"the tree's gsm8k gate fails {arm}: {score.accuracy:.4f}, at "
                        f"least {least:.4f} is wanted"
                    )
        return found

    @property
    def same_answers(self) -> bool:
        """Whether every question of every task has the same answer in every arm."""
        return all(
            not one.other_answers
            for by_arm in self.compared.values()
            for one in by_arm.values()
        )

    @property
    def differing(self) -> list[Differing]:
        """Every text that is another than the first arm's, right or wrong."""
        found = []
        for task, by_arm in self.answers.items():
            base, *others = by_arm
            first = {one.id: one for one in by_arm[base]}
            kept = self.texts.get(task, {})
            for arm in others:
                for one in by_arm[arm]:
                    if one.id in first and one.text != first[one.id].text:
                        texts = (
                            kept.get(name, {}).get(one.id, "") for name in (base, arm)
                        )
                        found.append(Differing(task, one.id, arm, *texts))
        return found

    def as_dict(self) -> dict[str, Any]:
        """The whole outcome as plain data, without a path of this machine."""
        tasks = {}
        for task, by_arm in self.answers.items():
            tasks[task] = {
                "columns": ["id", "read", "right", "finish", "tokens", "text"],
                "answers": {
                    arm: [
                        [a.id, a.read, a.right, a.finish, a.tokens, a.text]
                        for a in found
                    ]
                    for arm, found in by_arm.items()
                },
                "rounds": self.rounds[task],
                "compared": {a: c.as_dict() for a, c in self.compared[task].items()},
            }
        return {
            "plan": {**self.plan.described(), "allowed": self.plan.allowed},
            "servers": self.servers,
            "tasks": tasks,
            "gate": {
                **({"needs": vars(self.gate)} if self.gate else {}),
                "scores": {arm: one.as_dict() for arm, one in self.scores.items()},
            },
            "serve": {
                arm: [one.as_dict() for one in found]
                for arm, found in self.speeds.items()
            },
            "void": [],
        }

    def report(self, command: Sequence[str], sources: Mapping[str, str]) -> Path:
        """Writes the report that `python -m evals.record add` takes.

        Args:
            command: The words that made it; of absolute paths the last part is kept.
            sources: Blobs of the patched files in the tree that was served.
        """
        path = self.plan.out / REPORT
        found = {
            "bench": "eval",
            "command": list(command),
            "date": machine.now(),
            "machine": machine_of(self.plan.arms[0]),
            "sources": dict(sources),
            **self.as_dict(),
        }
        cli.write_json(path, machine.portable(found))
        return path


def read_outcome(plan: Plan, lines: Sequence[Mapping[str, Any]]) -> Outcome:
    """Reads a finished journal."""
    asked = [name for name in plan.tasks if name != serving.NAME]
    names = [arm.name for arm in plan.arms]
    answers: dict[str, dict[str, list[Answer]]] = {
        task: {name: [] for name in names} for task in asked
    }
    rounds: dict[str, dict[str, dict[str, Any]]] = {task: {} for task in asked}
    scores, servers = {}, []
    speeds: dict[str, list[Speed]] = {}
    texts: dict[str, dict[str, dict[str, str]]] = {
        task: {name: {} for name in names} for task in asked
    }
    faults: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for line in lines:
        kind, arm = line["kind"], line["arm"]
        rest = {k: v for k, v in line.items() if k not in ("kind", "arm")}
        if kind == "answer":
            answers[line["task"]][arm].append(
                Answer(*(line[key] for key in Answer.__dataclass_fields__))
            )
            texts[line["task"]][arm][line["id"]] = line.get("wrote", "")
        elif kind == "fault":
            faults[line["task"], arm][line["what"]] += 1
        elif kind == "round":
            kept = {k: v for k, v in rest.items() if k != "task"}
            kept["faults"] = dict(faults[line["task"], arm])
            rounds[line["task"]][arm] = kept
        elif kind == "gate":
            scores[arm] = Score(**rest)
        elif kind == "speed":
            speeds.setdefault(arm, []).append(Speed(**rest))
        elif kind == "server":
            servers.append({"arm": arm, **rest})
    for by_arm in answers.values():
        for found in by_arm.values():
            found.sort(key=lambda one: one.id)
    compared = {
        task: {
            name: one
            for name in names[1:]
            if (
                one := verdict.compare(
                    names[0],
                    name,
                    answers[task],
                    plan.margin,
                    gpqa.group if task == gpqa.NAME else str,
                )
            )
        }
        for task in asked
    }
    gate = None
    if gsm8k.NAME in asked and plan.documented:
        gate = gsm8k_gate.gate_of(plan.arms[0].tree, plan.model)
        if plan.threshold is not None:
            gate = Gate(plan.threshold, 0.0, "--threshold")
    return Outcome(
        plan, answers, compared, rounds, gate, scores, speeds, servers, texts
    )
