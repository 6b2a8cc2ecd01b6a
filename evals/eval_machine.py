# SPDX-License-Identifier: Apache-2.0
"""What an arm's interpreter runs on."""

import json
import os
import subprocess
from typing import Any

from evals.proof import Arm
from series.errors import SeriesError

_PROBE = """
import json, platform
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
found = {"python": platform.python_version()}
found |= {"torch": version("torch"), "triton": version("triton")}
try:
    import torch
except ImportError:
    print(json.dumps(found))
    raise SystemExit
found |= {"cuda": torch.version.cuda or "", "hip": torch.version.hip or ""}
if torch.cuda.is_available():
    gpu = torch.cuda.get_device_properties(0)
    arch = getattr(gpu, "gcnArchName", "") or f"sm_{gpu.major}{gpu.minor}"
    found |= {"device": gpu.name, "arch": arch, "memory_bytes": gpu.total_memory}
print(json.dumps(found))
"""


def machine_of(arm: Arm) -> dict[str, Any]:
    """The device and versions that an arm's interpreter sees.

    Raises:
        SeriesError: The interpreter does not answer.
    """
    done = subprocess.run(
        [str(arm.python), "-P", "-c", _PROBE], capture_output=True, text=True
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise SeriesError(f"{arm.python} failed when asked what it has: {last[0]}.")
    found = dict(json.loads(done.stdout.strip().splitlines()[-1]))
    found.setdefault("device", f"CPU, {os.cpu_count()} cores")
    return found
