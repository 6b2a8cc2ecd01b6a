# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: prepares the process, picks the cases, reports what ran.

Started by tests/run.py with `-p series_harness.plugin`. The report, a JSON file, goes
where the environment variable SERIES_HARNESS_REPORT says.
"""

import json
import os
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from series_harness import extensions, launches, on_cpu, rounding, selection

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

_outcomes: dict[str, str] = {}
_reasons: dict[str, str] = {}
_left_out: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Installs the hooks before the first test module, and so vllm, is imported."""
    extensions.install(stand_in=torch.cuda.is_available() and not torch.version.hip)
    launches.install()
    if INTERPRETED:
        rounding.install()
        on_cpu.install()


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leaves out, by the list and with its reason, what is too slow interpreted."""
    if not INTERPRETED:
        return
    rules = selection.load()
    for item in items:
        case = item.nodeid.split("::", 1)[-1]
        reason = selection.left_out(item.path.as_posix(), case, rules)
        if reason:
            _left_out[item.nodeid] = reason
    gone = [item for item in items if item.nodeid in _left_out]
    items[:] = [item for item in items if item.nodeid not in _left_out]
    if gone:
        config.hook.pytest_deselected(items=gone)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Runs a test that names CUDA on the CPU, and undoes its default device."""
    names_cuda = "cuda" in item.path.read_text(encoding="utf-8")
    try:
        if INTERPRETED and names_cuda:
            with on_cpu.CudaMeansCpu():
                return (yield)
        return (yield)
    finally:
        torch.set_default_device(None)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keeps each case's outcome: the worst of set-up, call and tear-down."""
    if report.skipped:
        _outcomes[report.nodeid] = "skipped"
        _reasons[report.nodeid] = _skip_reason(report.longrepr)
    elif report.failed:
        _outcomes[report.nodeid] = "failed"
    elif report.when == "call":
        _outcomes.setdefault(report.nodeid, "passed")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Keeps files that skip or fail as a whole: they hold no case to report."""
    if report.skipped:
        _outcomes[report.nodeid] = "skipped"
        _reasons[report.nodeid] = _skip_reason(report.longrepr)
    elif report.failed:
        _outcomes[report.nodeid] = "failed"


def _skip_reason(longrepr: Any) -> str:
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")


def _device() -> str:
    if INTERPRETED:
        return "CPU, Triton's interpreter"
    if not torch.cuda.is_available():
        return "CPU"
    index = torch.cuda.current_device()
    return torch.cuda.get_device_name(index)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the report."""
    path = os.environ.get("SERIES_HARNESS_REPORT")
    if not path:
        return
    import triton
    import vllm
    from vllm.platforms import current_platform

    report = {
        "vllm": str(Path(vllm.__file__).parent.parent),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "triton": triton.__version__,
        "device": _device(),
        "platform": type(current_platform).__name__,
        "compute_units": on_cpu.COMPUTE_UNITS if INTERPRETED else None,
        "stubs": extensions.stubs,
        "extensions": extensions.loaded,
        "outcomes": _outcomes,
        "reasons": _reasons,
        "left_out": _left_out,
        "launches": dict(launches.counts),
    }
    # What is not whole, on a full disk, fails the run with a message of its own.
    with suppress(OSError):
        Path(path).write_text(json.dumps(report, indent=1), encoding="utf-8")
