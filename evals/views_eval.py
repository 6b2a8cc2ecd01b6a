# SPDX-License-Identifier: Apache-2.0
"""Records of evaluations as tables; the command prints the same ones."""

from typing import Any

from evals.verdict import points, signed
from evals.views_ab import View


def scores(data: dict[str, Any]) -> View:
    """Each arm's score, and what it shows against the first."""
    rows = []
    for task, found in data["tasks"].items():
        for arm, answers in found["answers"].items():
            right, asked = sum(bool(row[2]) for row in answers), len(answers)
            share = f"{right / asked:.4f}" if asked else ""
            row = [task, arm, str(asked), str(right), share]
            one = found["compared"].get(arm)
            rows.append([*row, *(_compared(one) if one else [""] * 7)])
    columns = ["task", "arm", "asked", "right", "score", "points", "95% interval"]
    columns += ["other answers", "other texts", "p", "N can see", "verdict"]
    return "answers, each arm against the first", columns, rows


def _compared(one: dict[str, Any]) -> list[str]:
    return [
        signed(one["difference"]),
        f"{signed(one['low'])} to {signed(one['high'])}",
        str(len(one["other_answers"])),
        str(one["other_texts"]),
        f"{one['p']:.2g}",
        points(one["smallest"]),
        one["verdict"],
    ]


def gate(data: dict[str, Any]) -> View:
    """The tree's own GSM8K evaluator and its threshold."""
    found = data["gate"]
    needs = found.get("needs")
    rows = []
    for arm, one in found["scores"].items():
        verdict = "no threshold in the tree"
        if needs:
            least = needs["threshold"] - needs["tolerance"]
            passed = one["accuracy"] >= least
            verdict = f"{'PASSED' if passed else 'FAILED'}: at least {least:.4f}"
            verdict += f" ({needs['source']})"
        cells = [arm, str(one["questions"]), f"{one['accuracy']:.4f}"]
        rows.append([*cells, f"{one['invalid']:.4f}", f"{one['seconds']:.0f}", verdict])
    columns = ["arm", "questions", "accuracy", "no number", "s", "gate"]
    return "the tree's own gsm8k script", columns, rows


def speeds(data: dict[str, Any]) -> View:
    """Step times by cell and arm, beside the first arm's; one server each."""
    first: dict[str, float] = {}
    rows = []
    for arm, found in data["serve"].items():
        for one in found:
            ratio = ""
            if one["cell"] in first:
                ratio = f"{one['itl'] / first[one['cell']]:.3f}"
            first.setdefault(one["cell"], one["itl"])
            step = one["tpot"] * one["acceptance"]
            cells = [one["cell"], arm, str(one["completed"]), f"{one['itl']:.3f}"]
            cells += [f"{one['tpot']:.3f}", f"{one['acceptance']:.2f}", f"{step:.3f}"]
            rows.append([*cells, f"{one['ttft']:.1f}", ratio])
    rows.sort(key=lambda row: list(first).index(row[0]))
    columns = ["cell", "arm", "requests", "ITL ms", "TPOT ms", "acceptance"]
    columns += ["TPOT x acceptance", "TTFT ms", "ITL to the first"]
    return "vllm bench serve, medians; one server an arm, not judged", columns, rows


def requests(data: dict[str, Any]) -> View:
    """What asking took, and what went wrong without being scored."""
    rows = []
    for task, found in data["tasks"].items():
        for arm, one in found["rounds"].items():
            answers = found["answers"][arm]
            tokens = sum(row[4] for row in answers)
            cut = sum(row[3] == "length" for row in answers)
            faults = ", ".join(f"{n} {kind}" for kind, n in one["faults"].items())
            cells = [task, arm, str(one["asked"]), str(len(one["failed"]))]
            cells += [faults or "none", str(cut), str(tokens), f"{one['seconds']:.0f}"]
            rows.append(cells)
    columns = ["task", "arm", "asked", "without an answer", "faults", "cut off"]
    return "requests", [*columns, "tokens", "s"], rows


VIEWS = {"": scores, "gate": gate, "serve": speeds, "requests": requests}
