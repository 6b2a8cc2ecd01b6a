# SPDX-License-Identifier: Apache-2.0
"""How far an evaluation is, and how long the rest will take."""

import sys
import time
from collections.abc import Callable

_EVERY_S = 10.0

Say = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Tells the user."""
    print(line, file=sys.stderr, flush=True)


class Progress:
    """Says now and then how far a round is, and how long the rest will take."""

    def __init__(self, what: str, total: int, before: int, say: Say) -> None:
        self.what, self.total, self.done, self.say = what, total, before, say
        self.before = before
        self.begun_s = self.said_s = time.monotonic()

    def step(self) -> None:
        """One more is done."""
        self.done += 1
        now_s = time.monotonic()
        if now_s - self.said_s < _EVERY_S and self.done < self.total:
            return
        self.said_s = now_s
        took_s = now_s - self.begun_s
        left_s = took_s / (self.done - self.before) * (self.total - self.done)
        left = f", about {left_s / 60:.1f} min left" if self.done < self.total else ""
        self.say(f"{self.what}: {self.done} of {self.total}{left}")


def seldom(say: Say, every_s: float = 3 * _EVERY_S) -> Say:
    """Passes on at most one line in a while."""
    said_s = time.monotonic()

    def wait(line: str) -> None:
        nonlocal said_s
        if time.monotonic() - said_s >= every_s:
            said_s = time.monotonic()
            say(line)

    return wait
