# SPDX-License-Identifier: Apache-2.0
"""Runs pytest in another process, passes its output on, keeps what it reported."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_CLOSING = re.compile(r"^=* ?(.* in [\d.]+s.*?) ?=*$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Part:
    """One run of pytest.

    Attributes:
        name: What was run, for the summary.
        code: pytest's exit code.
        closing: pytest's own last line.
        report: What the plugin wrote; empty for runs without it.
    """

    name: str
    code: int
    closing: str
    report: dict[str, Any] = field(default_factory=dict)


def _stream(call: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """Runs a command with its output passed on as it comes; returns code and output."""
    sys.stdout.flush()
    process = subprocess.Popen(
        call, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    chunks = []
    try:
        while chunk := os.read(process.stdout.fileno(), 65536):
            chunks.append(chunk)
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        # The terminal interrupted pytest too: it may still say what it was doing.
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        raise
    finally:
        if sys.exc_info()[0] is not None:
            process.terminate()
        process.stdout.close()
        code = process.wait()
    return code, b"".join(chunks).decode(errors="replace")


def closing_line(output: str) -> str:
    """pytest's own last line in its output, without colours; empty if it has none."""
    for line in reversed(_COLOUR.sub("", output).splitlines()):
        match = _CLOSING.match(line.strip())
        if match:
            return match[1]
    return ""


def run(
    name: str,
    interpreter: str,
    args: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
) -> Part:
    """Runs pytest without the plugin."""
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    call = [interpreter, "-m", "pytest", *colour, *args]
    code, output = _stream(call, cwd, env)
    return Part(name, code, closing_line(output))


def run_with_report(
    name: str,
    interpreter: str,
    args: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
) -> Part:
    """Runs pytest with the harness's plugin, which writes no cache beside the tests.

    Without its report, whole, a run is no success: what it ran is not known.
    """
    with tempfile.TemporaryDirectory(prefix="series-report-") as folder:
        report = Path(folder) / "report.json"
        part = run(
            name,
            interpreter,
            ["-p", "series_harness.plugin", "-p", "no:cacheprovider", *args],
            cwd,
            {**env, "SERIES_HARNESS_REPORT": str(report)},
        )
        try:
            found = json.loads(report.read_text(encoding="utf-8"))
        except FileNotFoundError:
            # pytest died before, and its output says why; else it could not be made.
            return part if part.code else _unknown(part, folder)
        except ValueError:
            return _unknown(part, folder)
    return Part(part.name, part.code, part.closing, found)


def _unknown(part: Part, folder: str) -> Part:
    reason = f"its report in {Path(folder).parent} is not whole: is there space?"
    closing = f"{part.closing}; {reason}" if part.closing else reason
    return Part(part.name, part.code or 1, closing)


def groups(tests: Sequence[str]) -> dict[str, list[str]]:
    """Splits test paths by folder, each test once, in the order given."""
    folders: dict[str, list[str]] = {}
    for test in dict.fromkeys(tests):
        folder = str(Path(test.split("::", 1)[0]).parent)
        folders.setdefault(folder, []).append(test)
    return folders
