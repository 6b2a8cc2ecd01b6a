# SPDX-License-Identifier: Apache-2.0
"""A child in a session of its own, stopped together with everything it started."""

import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from series.errors import SeriesError

MARK = "SERIES_EVAL_SERVER"
GRACE_S = 20.0
KILL_S = 10.0
_PROC = Path("/proc")
_STEP_S = 0.05


class StartError(SeriesError):
    """A program cannot be started."""


@dataclass(frozen=True)
class Member:
    """A process, told from a later one that got its number."""

    pid: int
    started: str


@dataclass(frozen=True)
class _Row:
    state: str
    parent: int
    session: int
    member: Member


def _row(pid: int) -> _Row | None:
    """What /proc says of a process, None when it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold anything, a parenthesis too.
    fields = text[text.rindex(")") + 2 :].split()
    return _Row(fields[0], int(fields[1]), int(fields[3]), Member(pid, fields[19]))


def _marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


@dataclass
class Group:
    """A child and everything that it started.

    Attributes:
        child: The process itself.
        mark: What the environment of all of them holds, here and nowhere else.
    """

    child: "subprocess.Popen[bytes]"
    mark: str
    _seen: set[Member] = field(default_factory=set)

    @classmethod
    def start(
        cls, words: Sequence[str], env: Mapping[str, str], folder: Path, log: Path
    ) -> "Group":
        """Starts a program; its output goes to the log and nowhere else.

        Raises:
            StartError: It cannot be started.
        """
        mark = uuid.uuid4().hex
        # setproctitle would write its title over what /proc shows of the variables.
        whole = {**env, MARK: mark, "SPT_NOENV": "1"}
        with log.open("wb") as file:
            try:
                child = subprocess.Popen(
                    words,
                    env=whole,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise StartError(
                    f"{words[0]} does not start: {error.strerror}.",
                    "Name an interpreter that can run that tree.",
                ) from error
        return cls(child, mark)

    def members(self) -> set[Member]:
        """The processes that run: of its session, below it, or with its mark.

        An engine may open a session of its own, and one whose parent died hangs below
        init: each of the three finds what the others miss.
        """
        pids = [int(path.name) for path in _PROC.glob("[0-9]*")]
        rows = [row for pid in pids if (row := _row(pid)) is not None]
        below = {self.child.pid}
        while more := {
            row.member.pid
            for row in rows
            if row.parent in below and row.member.pid not in below
        }:
            below |= more
        mark = f"{MARK}={self.mark}".encode()
        self._seen |= {
            row.member
            for row in rows
            if row.member.pid in below
            or row.session == self.child.pid
            or _marked(row.member.pid, mark)
        }
        alive = {row.member for row in rows if row.state not in "ZX"}
        self._seen &= alive
        return set(self._seen)

    def stop(self) -> None:
        """Ends them all: asked first, killed when the grace is over.

        Safe to call again, and after an interrupt in the middle of it.
        """
        try:
            self._signal(signal.SIGTERM)
            self._wait(GRACE_S)
        finally:
            self._signal(signal.SIGKILL)
            self._wait(KILL_S)

    def _signal(self, number: signal.Signals) -> None:
        for member in self.members():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(member.pid, number)
        # Where there is no /proc, the group is all that can be named; a group whose
        # leader is reaped and that is empty may be someone else's by now.
        if self.child.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.pid, number)

    def _wait(self, limit_s: float) -> None:
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s:
            if self.child.poll() is not None and not self.members():
                return
            time.sleep(_STEP_S)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does, so that it can clean up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
