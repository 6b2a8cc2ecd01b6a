# SPDX-License-Identifier: Apache-2.0
"""What a measurement ran on: the GPU, the driver, the versions, the sources."""

import datetime
import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evals.sensors import Sensor
from series.errors import SeriesError


class NoGpuError(SeriesError):
    """There is nothing to measure on."""


def now() -> str:
    """The time, ISO 8601, UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat("T", "seconds")


def version(distribution: str) -> str:
    """The installed version of a distribution, empty if there is none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def require_gpu() -> None:
    """Refuses a machine on which torch sees no GPU.

    Raises:
        NoGpuError: torch is missing or sees none.
    """
    hint = "Run it on a machine with a CUDA or ROCm GPU and a torch built for it."
    try:
        import torch
    except ImportError as error:
        raise NoGpuError(f"{sys.executable} has no torch: {error}.", hint) from error
    if not torch.cuda.is_available():
        what = f"torch {torch.__version__} sees no GPU: there is nothing to measure."
        raise NoGpuError(what, hint)


def gpu_facts(sensor: Sensor) -> dict:
    """Device, driver and versions, as a record keeps them."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "arch": getattr(properties, "gcnArchName", "")
        or f"sm_{properties.major}{properties.minor}",
        "compute_units": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "driver": sensor.driver,
        "cuda": torch.version.cuda or "",
        "hip": torch.version.hip or "",
        "sensor": sensor.source,
        **versions(),
    }


def versions() -> dict:
    """The versions that decide what code runs."""
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "triton": version("triton"),
    }


def portable(data: Any) -> Any:
    """Plain data that names no folder of this machine.

    Of every absolute path, also one behind --option=, the last part is kept.
    """
    if isinstance(data, dict):
        return {key: portable(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [portable(value) for value in data]
    if not isinstance(data, str):
        return data
    option, equals, value = data.partition("=")
    if equals and option.startswith("--"):
        return f"{option}={portable(value)}"
    return Path(data).name if os.path.isabs(data) else data


def blobs(root: Path, files: Iterable[str]) -> dict[str, str]:
    """git's blob ids of files below root that exist, by their path from it.

    Patches name the blob that each of their files becomes, so that a measured file
    can be told from what the series has now.
    """
    found = {}
    for name in files:
        if (root / name).is_file():
            data = (root / name).read_bytes()
            head = b"blob %d\0" % len(data)
            found[name] = hashlib.sha1(head + data, usedforsecurity=False).hexdigest()
    return found
