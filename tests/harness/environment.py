# SPDX-License-Identifier: Apache-2.0
"""What an interpreter has: torch, a GPU, the packages that the tests need."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PROBE = """
import json, sys
from importlib import metadata
found = {"python": sys.version.split()[0], "missing": []}
for name in sys.argv[1:]:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        found["missing"].append(name)
try:
    installed = metadata.distribution("vllm")
    found["vllm"] = installed.version
    found["vllm_folder"] = str(installed.locate_file("vllm"))
except metadata.PackageNotFoundError:
    pass
try:
    import torch
    found["torch"] = torch.__version__
    found["gpu"] = torch.cuda.is_available()
    found["hip"] = bool(torch.version.hip)
    found["device"] = torch.cuda.get_device_name(0) if found["gpu"] else ""
except ImportError as error:
    found["missing"].append(f"torch ({error})")
print("\\n" + json.dumps(found))
"""


@dataclass(frozen=True)
class Environment:
    """An interpreter and what was found in it.

    Attributes:
        vllm: The release of vLLM installed there, empty if none.
        vllm_folder: Where that one lies.
    """

    interpreter: str
    python: str
    torch: str
    gpu: bool
    hip: bool
    device: str
    missing: tuple[str, ...]
    vllm: str = ""
    vllm_folder: str = ""


class ProbeError(Exception):
    """The interpreter cannot be started or does not answer."""


def probe(
    interpreter: str, needs: Sequence[str], env: Mapping[str, str] | None = None
) -> Environment:
    """Starts the interpreter once and asks what it has; installs nothing.

    Args:
        needs: Names of distributions that must be there.
        env: The environment to ask in; the caller's own by default.

    Raises:
        ProbeError: It does not start, or dies before it answers.
    """
    call = [interpreter, "-c", _PROBE, *needs]
    try:
        done = subprocess.run(call, capture_output=True, text=True, env=env)
    except OSError as error:
        raise ProbeError(f"{interpreter} does not start: {error.strerror}") from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ProbeError(f"{interpreter} failed when asked what it has: {last[0]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return Environment(
        interpreter=interpreter,
        python=found["python"],
        torch=found.get("torch", ""),
        gpu=found.get("gpu", False),
        hip=found.get("hip", False),
        device=found.get("device", ""),
        missing=tuple(found["missing"]),
        vllm=found.get("vllm", ""),
        vllm_folder=found.get("vllm_folder", ""),
    )


def needed(requirements: Path) -> list[str]:
    """The distribution names that a pinned requirements file lists."""
    names = []
    for line in requirements.read_text(encoding="utf-8").splitlines():
        requirement = line.split("#", 1)[0].split(";", 1)[0].strip()
        if "==" in requirement:
            names.append(requirement.split("==", 1)[0].split("[", 1)[0].strip())
    return names


def variables(
    found: Environment, paths: Sequence[Path], cache: Path, extensions: Sequence[Path]
) -> dict[str, str]:
    """The environment variables for a run of the tree's tests.

    Args:
        paths: Folders that come first on the module path, the tree's own among them.
        cache: A folder for everything that would else be written into the tree or HOME.
        extensions: Folders in which compiled extensions may lie.
    """
    # A user's VLLM_ switches would test another configuration than the one reported.
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VLLM_", "PYTEST_", "GIT_", "TRITON_INTERPRET"))
    }
    user_path = os.environ.get("PYTHONPATH")
    entries = [str(path) for path in paths] + ([user_path] if user_path else [])
    env |= {
        "PYTHONPATH": os.pathsep.join(entries),
        "PYTHONPYCACHEPREFIX": str(cache / "bytecode"),
        "PYTHONUNBUFFERED": "1",
        # Installed plugins of an image are no part of what is tested.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "VLLM_CONFIG_ROOT": str(cache / "vllm"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "HF_HUB_OFFLINE": "1",
        "SERIES_HARNESS_EXTENSIONS": os.pathsep.join(map(str, extensions)),
    }
    if not found.gpu:
        # An empty list of devices keeps vLLM from replacing triton by a stub.
        env |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    return env
