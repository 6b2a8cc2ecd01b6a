# SPDX-License-Identifier: Apache-2.0
"""GSM8K by the tree's own evaluator and threshold: the documented arm of the evidence.

It counts a failed request as a wrong answer and takes the last digits of a text for its
number, so its score says whether upstream's gate is passed and no more. A run in which
a request failed is void here.
"""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from evals import tree_program
from evals.proof import Arm
from evals.tree_program import ProgramError

SCRIPT = "tests/evals/gsm8k/gsm8k_eval.py"
CONFIGS = "tests/evals/gsm8k/configs"
TOLERANCE = 0.08
"""What the tree's own test takes where a configuration names none."""
_FAILED = re.compile(r"Error calling vLLM API \((\w+)\)")
_LONG_S = 10**7


@dataclass(frozen=True)
class Gate:
    """A threshold of the tree's, and the file that it comes from."""

    threshold: float
    tolerance: float
    source: str


@dataclass(frozen=True)
class Score:
    """What the tree's evaluator said of an arm.

    Attributes:
        accuracy: Share of 1.
        invalid: Share of answers without any number.
        questions: How many were asked.
        tokens: Of all answers.
        seconds: For all of them.
    """

    accuracy: float
    invalid: float
    questions: int
    tokens: int
    seconds: float

    def passes(self, gate: Gate) -> bool:
        """Whether the score reaches the threshold, the tolerance granted."""
        return self.accuracy >= gate.threshold - gate.tolerance

    def as_dict(self) -> dict[str, Any]:
        """The score as plain data."""
        return asdict(self)


def gate_of(tree: Path, model: str) -> Gate | None:
    """The tree's threshold for a model, by its name or its folder's.

    Of several configurations of one model the plainest counts, the one with the
    shortest file name.
    """
    wanted = model.rstrip("/").rpartition("/")[2].casefold()
    files = sorted((tree / CONFIGS).glob("*.yaml"), key=lambda p: (len(p.name), p.name))
    for path in files:
        said = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        name = str(said.get("model_name", ""))
        threshold = said.get("accuracy_threshold")
        if threshold is not None and name.rpartition("/")[2].casefold() == wanted:
            tolerance = float(said.get("tolerance", TOLERANCE))
            return Gate(float(threshold), tolerance, path.name)
    return None


def run(
    arm: Arm,
    url: str,
    data: Path,
    folder: Path,
    count: int,
    *,
    max_tokens: int,
    concurrency: int,
    limit_s: float,
    check: Callable[[], None],
) -> Score:
    """Runs the tree's evaluator on checked data against a server of that tree.

    Args:
        arm: Whose tree.
        url: Of the server.
        data: The folder with the checked files.
        folder: Of this run alone.
        count: Questions.
        max_tokens: Of an answer.
        concurrency: Requests under way at a time.
        limit_s: How long the whole run may take.
        check: Called while it runs; raises where the server is gone.

    Raises:
        ProgramError: It failed, or requests of it did.
    """
    # It takes whatever lies in the temporary folder under these names, for ever.
    inbox = folder / "tmp"
    shutil.rmtree(inbox, ignore_errors=True)
    shutil.copytree(data, inbox)
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    at = urlsplit(url)
    words = [str((arm.tree / SCRIPT).absolute()), "--num-questions", str(count)]
    words += ["--max-tokens", str(max_tokens)]
    words += ["--host", f"{at.scheme}://{at.hostname}", "--port", str(at.port)]
    words += ["--max-concurrency", str(concurrency)]
    # Its queue counts against the timeout of a request: the run's own limit holds.
    words += ["--request-timeout-seconds", str(_LONG_S)]
    words += ["--save-results", str(result.absolute())]
    # As a folder on the path its siblings would hide other modules.
    env = {"TMPDIR": str(inbox.absolute()), "PYTHONSAFEPATH": "1"}
    text = tree_program.run(arm, words, folder, check=check, limit_s=limit_s, env=env)
    failed = _FAILED.findall(text)
    if failed:
        raise ProgramError(
            f"{len(failed)} requests of the tree's GSM8K script failed ({failed[0]}); "
            "it counts them as wrong answers, so its score is void.",
            f"See {folder / 'output.log'} and the server's log.",
        )
    try:
        said = json.loads(result.read_text(encoding="utf-8"))
        score = Score(
            said["accuracy"],
            said["invalid_rate"],
            said["num_questions"],
            said["total_output_tokens"],
            round(said["latency"], 1),
        )
    except (OSError, ValueError, KeyError) as error:
        raise ProgramError(
            f"The tree's GSM8K script left no result: {error!r}.",
            f"See {folder / 'output.log'}.",
        ) from error
    if score.questions != count:
        raise ProgramError(
            f"The tree's GSM8K script asked {score.questions} of {count} questions.",
            f"See {folder / 'output.log'}.",
        )
    return score
