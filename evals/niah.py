# SPDX-License-Identifier: Apache-2.0
"""A number hidden in noise, at every depth of ever longer texts: RULER's niah_single_1.

The noise, the needle and the question are those that lm-eval ships; only the depths are
laid out evenly here, where RULER draws them at random.
"""

import ast
import importlib.util
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evals.questions import Item, Question, Task
from series.errors import SeriesError, UsageError

NAME = "niah"
LENGTHS = (4096, 8192, 16384, 32768, 65536)
DEPTHS = 11
SAMPLES = 3
MAX_TOKENS = 128
SEED = 42
CHAT_TOKENS = 64
"""Kept free for a chat template."""
_WORDS = (
    "amber",
    "basket",
    "canyon",
    "cobalt",
    "copper",
    "falcon",
    "garnet",
    "harbor",
    "island",
    "kettle",
    "lagoon",
    "meadow",
    "oasis",
    "pebble",
    "quartz",
    "saddle",
    "thistle",
    "umbrella",
    "velvet",
    "willow",
)
_NUMBER = re.compile(r"\d[\d,]*")


class NiahError(SeriesError):
    """The texts cannot be made."""


@dataclass(frozen=True)
class Texts:
    """What RULER puts together.

    Attributes:
        noise: The sentences that are repeated.
        needle: With places for type_needle_v, key and value.
        frame: Round it, with places for type_needle_v, context and query.
    """

    noise: str
    needle: str
    frame: str


def published() -> Texts:
    """The texts out of the installed lm-eval, without running its code.

    Raises:
        NiahError: lm-eval is not there or has none.
    """
    found = importlib.util.find_spec("lm_eval")
    if found is None or found.origin is None:
        raise NiahError("lm-eval is not installed.", "make eval installs it.")
    folder = Path(found.origin).parent / "tasks/ruler"
    strings: dict[str, list[str]] = {}
    for file in ("prepare_niah.py", "niah_utils.py"):
        for node in ast.walk(ast.parse((folder / file).read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
                and isinstance(node.targets[0], ast.Name)
            ):
                strings.setdefault(node.targets[0].id, []).append(node.value.value)
    try:
        noise, needle = strings["haystack"][0], strings["NEEDLE"][0]
        frame = strings["TEMPLATE"][0]
    except KeyError as error:
        raise NiahError(f"lm-eval's RULER has no {error.args[0]}.") from error
    # One needle: RULER turns its plurals into singulars.
    for plural, singular in (("Some", "A"), ("are all", "is"), ("are", "is")):
        frame = frame.replace(plural, singular)
    return Texts(noise, needle, frame)


def read(text: str) -> str:
    """Every number of an answer, so that the needle can be looked for among them."""
    return " ".join(found.replace(",", "") for found in _NUMBER.findall(text))


def right(read_: str, target: str) -> bool:
    """Whether the needle is among the numbers."""
    return target in read_.split()


def made(texts: Texts, sentences: int, depth: float, key: str, value: str) -> str:
    """A text of so many sentences of noise, the needle at a depth of 0 to 1."""
    lines = [texts.noise] * sentences
    needle = texts.needle.format(type_needle_v="numbers", key=key, value=value)
    lines.insert(round(depth * sentences), needle)
    context = "\n".join(lines)
    return texts.frame.format(type_needle_v="number", context=context, query=key)


def fitting(count: Callable[[str], int], texts: Texts, length: int) -> int:
    """The most sentences of noise with which prompt and answer fit a length.

    Args:
        count: Tokens of a text, as the server counts them.
        texts: What is put together.
        length: Tokens in all.

    Raises:
        UsageError: Not even one fits.
    """
    room = length - MAX_TOKENS - CHAT_TOKENS

    def tokens(sentences: int) -> int:
        return count(made(texts, sentences, 0.5, "-".join(_WORDS[:2]), "1234567"))

    one, eleven = tokens(1), tokens(11)
    each = max(1.0, (eleven - one) / 10)
    guess = int((room - one) / each) + 1
    while guess > 0 and tokens(guess) > room:
        guess -= max(1, int((tokens(guess) - room) / each))
    if guess < 1:
        raise UsageError(
            f"--lengths {length}: too short for a prompt and an answer.",
            f"The shortest is about {one + MAX_TOKENS + CHAT_TOKENS}.",
        )
    return guess


def task(
    count: Callable[[str], int],
    *,
    lengths: tuple[int, ...] = LENGTHS,
    depths: int = DEPTHS,
    samples: int = SAMPLES,
    chat: bool = True,
    texts: Texts | None = None,
) -> Task:
    """Every length at every depth, as many samples as asked.

    Args:
        count: Tokens of a text, as the server counts them.
        lengths: In tokens, prompt and answer together.
        depths: From the beginning to the end, evenly.
        samples: Of each length and depth.
        chat: Whether the model's chat template is used, its thinking switched off.
        texts: What is put together; lm-eval's by default.
    """
    texts = texts or published()
    items = []
    for length in lengths:
        sentences = fitting(count, texts, length)
        for step in range(depths):
            depth = step / (depths - 1) if depths > 1 else 0.5
            for sample in range(samples):
                chance = random.Random(f"{SEED} {length} {step} {sample}")
                key = "-".join(chance.sample(_WORDS, 2))
                value = str(chance.randrange(10**6, 10**7))
                settings: dict[str, object] = {
                    "temperature": 0.0,
                    "max_tokens": MAX_TOKENS,
                    "seed": SEED,
                }
                prompt = made(texts, sentences, depth, key, value)
                if chat:
                    settings["chat_template_kwargs"] = {"enable_thinking": False}
                else:
                    prompt += f"\nThe number for {key} is"
                id_ = f"{NAME}-{length}-{round(100 * depth)}-{sample}"
                items.append(Item(Question(id_, prompt, chat, settings), value))
    return Task(NAME, items, read, right=right)
