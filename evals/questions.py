# SPDX-License-Identifier: Apache-2.0
"""A question, what a server replied, and what is made of the reply."""

import hashlib
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Question:
    """What is sent to a server, the same to every arm.

    Attributes:
        id: Names the question in journals and records.
        prompt: The text, or the user's message where it is a chat.
        chat: Whether the model's chat template is put round it.
        settings: Sampling, stops and limits, as the API names them.
    """

    id: str
    prompt: str
    chat: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def messages(self) -> str:
        """The chat that the prompt is, as JSON."""
        return json.dumps([{"role": "user", "content": self.prompt}])


@dataclass(frozen=True)
class Reply:
    """What a server answered.

    Attributes:
        text: The answer.
        finish: "stop", or "length" where it was cut off.
        tokens: Of the answer.
        seconds: From the request to the whole answer.
    """

    text: str
    finish: str
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Item:
    """A question and the answer that is right."""

    question: Question
    target: str


@dataclass(frozen=True)
class Task:
    """Questions of one kind.

    Attributes:
        name: Of the task.
        items: In the order in which they are asked.
        read: Reads the answer out of a text, "" where there is none.
        keeps_text: Whether the journal may keep what the model wrote.
        right: Says whether what was read is the target.
    """

    name: str
    items: Sequence[Item]
    read: Callable[[str], str]
    keeps_text: bool = True
    right: Callable[[str, str], bool] = operator.eq

    def digest(self) -> str:
        """Changes with any question, setting or target; shows none of them."""
        words = [
            [
                i.question.id,
                i.question.prompt,
                i.question.chat,
                dict(i.question.settings),
            ]
            for i in self.items
        ]
        return sha(json.dumps([words, [i.target for i in self.items]]))


def sha(text: str) -> str:
    """A digest of a text, short enough to read."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
