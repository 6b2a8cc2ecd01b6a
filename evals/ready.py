# SPDX-License-Identifier: Apache-2.0
"""Is the server ready? It is when it has answered a real request."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.local_http import ReplyError, ask
from evals.processes import Group
from evals.proof import (
    Arm,
    NotReadyError,
    ServerError,
    WrongServerError,
    died,
    kernel_line,
    require_arm,
    tail,
    with_tail,
)

POLL_S = 1.0
ATTEMPTS = 3


@dataclass(frozen=True)
class Launch:
    """A server on its way up."""

    arm: Arm
    url: str
    model: str
    group: Group
    log: Path
    facts: Path


def wait(launch: Launch, ready_s: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Waits until the server answers a request, and proves that it is the arm.

    Returns:
        The facts.

    Raises:
        ServerDied: It ended.
        NotReadyError: It did not answer in time, or answered with an error.
        WrongServerError: Another tree, or another server, answers.
    """
    begun_s = time.monotonic()
    facts: dict[str, Any] | None = None
    asking: _Question | None = None
    refused = 0
    while True:
        _require_alive(launch)
        if facts is None and launch.facts.exists():
            facts = json.loads(launch.facts.read_text(encoding="utf-8"))
            require_arm(launch.arm, launch.group.child.pid, facts)
        if asking is not None and asking.done:
            if asking.answered:
                break
            refused += asking.refused
            if asking.status == 404 or refused >= ATTEMPTS:
                raise _refusal(launch, asking)
            asking = None
        elif asking is None and facts is not None and _is_up(launch.url):
            asking = _Question(launch)
        waited_s = time.monotonic() - begun_s
        if waited_s > ready_s:
            stage = "answered no request" if asking else "did not come up"
            what = f"The {launch.arm.name} server {stage} in {ready_s:g} s."
            raise NotReadyError(
                with_tail(what, launch.log),
                "Give it more time, or a smaller model.",
            )
        say(_progress(launch, waited_s))
        time.sleep(POLL_S)
    assert facts is not None
    facts["decode_kernel"] = kernel_line(launch.log)
    return facts


class _Question:
    """A real completion, asked in a thread so that the child can be watched."""

    def __init__(self, launch: Launch) -> None:
        self.done = self.answered = self.refused = False
        self.status = 0
        self.said = ""
        self._url = f"{launch.url}/v1/completions"
        self._body = {
            "model": launch.model,
            "prompt": "One and one is",
            "max_tokens": 4,
            "temperature": 0,
            "ignore_eos": True,
        }
        threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        try:
            said = ask(self._url, self._body, timeout_s=600)
            made = said["usage"]["completion_tokens"]
            self.answered = isinstance(said["choices"][0]["text"], str) and made > 0
            self.refused, self.said = not self.answered, f"{said}"[:400]
        except ReplyError as error:
            self.refused, self.status, self.said = True, error.status, error.said
        except (KeyError, TypeError, IndexError):
            self.refused, self.said = True, "an answer that is no completion"
        except OSError as error:
            self.said = str(error)
        finally:
            self.done = True


def _require_alive(launch: Launch) -> None:
    if (code := launch.group.child.poll()) is not None:
        raise died(launch.arm.name, code, launch.log)


def _is_up(url: str) -> bool:
    try:
        ask(f"{url}/health", timeout_s=5)
    except (OSError, ReplyError):
        return False
    return True


def _refusal(launch: Launch, asked: _Question) -> ServerError:
    if asked.status == 404:
        return WrongServerError(
            f"What answers at {launch.url} does not serve {launch.model}: it is "
            f"another server. It said: {asked.said}",
            "Stop that one, or take another port.",
        )
    what = (
        f"The {launch.arm.name} server is healthy and answers no request: "
        f"{asked.status or ''} {asked.said}."
    )
    return NotReadyError(with_tail(what, launch.log), "The log above says why.")


def _progress(launch: Launch, waited_s: float) -> str:
    last = tail(launch.log, 1).strip()
    return f"{launch.arm.name}: starting, {waited_s:.0f} s  {last[:100]}".rstrip()
