# SPDX-License-Identifier: Apache-2.0
"""Whether a bundle fits the machine it was carried to: Python, torch, extensions."""

import platform
import subprocess
import sys
from pathlib import Path

if __package__:
    from evals.bare.unpacking import BundleError
else:
    from unpacking import BundleError  # type: ignore[import-not-found, no-redef]

_LOAD = """
import importlib, sys
import torch
for name in sys.argv[2:]:
    importlib.import_module(name)
if not hasattr(torch.ops._C, sys.argv[1]):
    sys.exit(f"torch.ops._C has no {sys.argv[1]}")
"""


def torch_facts() -> dict:
    """What this Python's torch is; raises where there is none."""
    try:
        import torch
    except ImportError as error:
        raise BundleError(
            f"{sys.executable} has no torch ({error}): use the Python that has."
        ) from error
    return {
        "torch": torch.__version__,
        "hip": torch.version.hip,
        "cuda": torch.version.cuda,
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "",
        "cxx11_abi": torch.compiled_with_cxx11_abi(),
    }


def check_python(described: dict) -> None:
    """The wheels are for one Python version; others cannot load them."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if running != described["python"]:
        raise BundleError(
            f"This is Python {running}; the bundle's wheels are for "
            f"{described['python']}. Run it with python{described['python']}."
        )


def _release(version: str) -> tuple[int, ...]:
    numbers = version.split("+")[0].split(".")[:2]
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in numbers)


def unfit(asked: dict, facts: dict, machine: str) -> list[str]:
    """Why this machine cannot load the compiled extensions; empty where it can."""
    reasons = []
    if machine != "x86_64":
        reasons.append(f"they are for x86_64, this is {machine}")
    if _release(facts["torch"]) < _release(asked["torch"]):
        reasons.append(f"they need torch {asked['torch']}, this is {facts['torch']}")
    if (facts["cuda"] or "").split(".")[0] != asked["cuda"]:
        has = f"CUDA {facts['cuda']}" if facts["cuda"] else "no CUDA"
        reasons.append(f"they need a torch for CUDA {asked['cuda']}, this has {has}")
    if not facts["cxx11_abi"]:
        reasons.append("they use C++11's strings, this torch does not")
    return reasons


def check_extensions(described: dict, facts: dict) -> None:
    """Refuses the engine where its extensions are not there or cannot be loaded."""
    asked = described.get("extensions")
    if asked is None:
        raise BundleError(
            "this bundle has no engine: make it again with ARGS=--engine."
        )
    if reasons := unfit(asked, facts, platform.machine()):
        raise BundleError(f"the extensions cannot be used: {'; '.join(reasons)}.")


def load_extensions(folder: Path, described: dict, env: dict[str, str]) -> None:
    """Loads every extension once, in a process of its own."""
    done = folder / "extensions-load"
    if done.exists():
        return
    asked = described["extensions"]
    call = [sys.executable, "-c", _LOAD, asked["op"], *asked["modules"]]
    result = subprocess.run(call, env=env, capture_output=True, text=True)
    if result.returncode:
        said = result.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise BundleError(f"the extensions do not load: {said[0]}")
    print(f"{len(asked['modules'])} extensions load, {asked['op']} is there")
    done.touch()
