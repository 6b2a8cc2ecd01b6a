# SPDX-License-Identifier: Apache-2.0
"""Starts and ends the fake server of the tests, and reads what it was asked."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from series.errors import SeriesError

SCRIPT = Path(__file__).with_name("fake_server.py")


class GoneError(SeriesError):
    """The fake server is gone."""


@dataclass(frozen=True)
class Fake:
    """A fake server that runs."""

    url: str
    log: Path
    child: subprocess.Popen
    model: str = "fake"

    def asked(self) -> list[dict[str, Any]]:
        """Every request so far."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def check(self) -> None:
        """Raises GoneError when the process is gone."""
        if self.child.poll() is not None:
            raise GoneError(f"The fake server ended with {self.child.returncode}.")


@contextmanager
def fake(folder: Path, *words: str) -> Iterator[Fake]:
    """A fake server as a child process, for as long as the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    ready, log = folder / "port", folder / "asked.jsonl"
    ready.unlink(missing_ok=True)
    call = [sys.executable, str(SCRIPT), "--log", str(log), "--ready", str(ready)]
    child = subprocess.Popen([*call, *words])
    try:
        for _ in range(2000):
            if ready.exists() or child.poll() is not None:
                break
            time.sleep(0.01)
        yield Fake(f"http://127.0.0.1:{ready.read_text()}", log, child)
    finally:
        child.kill()
        child.wait()
