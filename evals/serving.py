# SPDX-License-Identifier: Apache-2.0
"""Serving speed by the tree's own `vllm bench serve`, at the published settings.

Its median inter-token latency is the time of a decode step, whatever a step accepts;
TPOT times the acceptance length is the same time from the other side. One server an arm
is one sample: these figures describe, they do not judge. evals.ab judges.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evals import tree_program
from evals.proof import Arm
from evals.tree_program import ProgramError
from series.errors import UsageError

NAME = "serve"
SEED = 42
WAVES = 4
"""Prompts of a cell, in multiples of its concurrency."""
LEAST = 10


@dataclass(frozen=True)
class Cell:
    """One setting of the benchmark, in tokens.

    Attributes:
        plain: Whether it wants a server of its own without speculation, that takes one
            request at a time: the gate's workload.
    """

    input: int
    output: int
    concurrency: int
    prompts: int
    plain: bool = False

    @property
    def name(self) -> str:
        """What tables call it."""
        words = f"{self.input}/{self.output} x{self.concurrency}"
        return f"{words} plain" if self.plain else words


GATE = Cell(100, 128, 1, 10, plain=True)
PUBLISHED = (
    GATE,
    *(
        Cell(length, output, at_once, max(LEAST, WAVES * at_once))
        for length, output in ((2048, 256), (65536, 1024))
        for at_once in (1, 8, 32)
    ),
)
PLAIN_ARGS = ("--max-num-seqs", "1")
_SPECULATION = ("--speculative-config", "-sc", "--speculative_config")


@dataclass(frozen=True)
class Speed:
    """What one cell took, in ms.

    Attributes:
        itl: Median time between two tokens' arrivals: a decode step.
        tpot: Median time per output token after the first.
        ttft: Median time to the first token.
        acceptance: Tokens a step, 1 without speculation.
        seconds: For all prompts.
    """

    cell: str
    completed: int
    itl: float
    tpot: float
    ttft: float
    acceptance: float
    seconds: float

    @property
    def step(self) -> float:
        """TPOT times acceptance, ms: the step time seen from the tokens."""
        return self.tpot * self.acceptance

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain data."""
        return asdict(self)


def cells_of(text: str) -> tuple[Cell, ...]:
    """Reads INPUT/OUTPUTxCONCURRENCY[xPROMPTS], comma between, perhaps plain: before.

    Raises:
        UsageError: One is written otherwise.
    """
    found = []
    for word in text.split(","):
        _, plain, shape = word.strip().rpartition("plain:")
        try:
            lengths, at_once, *rest = shape.split("x")
            length, output = map(int, lengths.split("/"))
            many = max(LEAST, WAVES * int(at_once))
            for number in rest:
                many = int(number)
            cell = Cell(length, output, int(at_once), many, bool(plain))
            if len(rest) > 1 or min(length, output, cell.concurrency, many) < 1:
                raise ValueError
        except ValueError as error:
            raise UsageError(
                f"--cells {word!r} is no cell.", "2048/256x8,plain:100/128x1x10"
            ) from error
        found.append(cell)
    return tuple(found)


def without_speculation(args: Sequence[str]) -> list[str]:
    """The words for a plain server: one request at a time, no speculation."""
    kept: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, _ = word.partition("=")
        if name in (*_SPECULATION, "--max-num-seqs"):
            if not equals:
                next(words, None)
            continue
        kept.append(word)
    return [*kept, *PLAIN_ARGS]


def run(
    arm: Arm,
    url: str,
    served: str,
    model: str,
    cell: Cell,
    folder: Path,
    *,
    limit_s: float,
    check: Callable[[], None],
) -> Speed:
    """Runs one cell against a server of the arm.

    Args:
        arm: Whose tree.
        url: Of the server.
        served: The name it answers to.
        model: The model itself, for its tokenizer.
        cell: What is asked.
        folder: Of this cell alone.
        limit_s: How long it may take.
        check: Called while it runs; raises where the server is gone.

    Raises:
        ProgramError: It failed, or a request of it did.
    """
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    words = ["-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "vllm"]
    words += ["--base-url", url, "--model", served, "--tokenizer", model]
    words += ["--dataset-name", "random", "--random-input-len", str(cell.input)]
    words += ["--random-output-len", str(cell.output), "--ignore-eos"]
    words += ["--num-prompts", str(cell.prompts), "--seed", str(SEED)]
    words += ["--max-concurrency", str(cell.concurrency), "--temperature", "0"]
    words += ["--disable-tqdm", "--save-result", "--result-dir", str(folder.absolute())]
    words += ["--result-filename", result.name]
    env = {"HF_HUB_OFFLINE": "1"} if Path(model).is_dir() else {}
    tree_program.run(arm, words, folder, check=check, limit_s=limit_s, env=env)
    return read(result, cell)


def read(result: Path, cell: Cell) -> Speed:
    """What the benchmark measured; it exits with 0 though every request failed.

    Raises:
        ProgramError: A request failed, or there is no result.
    """
    hint = f"See {result.parent / 'output.log'} and the server's log."
    try:
        said = json.loads(result.read_text(encoding="utf-8"))
        completed = int(said["completed"])
        if completed == cell.prompts and not said.get("failed"):
            return Speed(
                cell=cell.name,
                completed=completed,
                itl=round(float(said["median_itl_ms"]), 4),
                tpot=round(float(said["median_tpot_ms"]), 4),
                ttft=round(float(said["median_ttft_ms"]), 3),
                acceptance=round(
                    float(said.get("spec_decode_acceptance_length", 1)), 4
                ),
                seconds=round(float(said["duration"]), 2),
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProgramError(
            f"vllm bench serve left no result for {cell.name}: {error!r}.", hint
        ) from error
    raise ProgramError(
        f"{cell.name}: {completed} of {cell.prompts} requests succeeded: the cell is "
        "void.",
        hint,
    )
