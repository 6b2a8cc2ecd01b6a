# SPDX-License-Identifier: Apache-2.0
"""Runs tests written for a GPU on a CPU, under Triton's interpreter.

vLLM finds no platform there: what it then refuses to answer is answered here, and the
tests' literal device "cuda" means the CPU while one of them runs.
"""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

COMPUTE_UNITS = 16
"""What num_compute_units answers: small, so that small cases reach every tile rule."""


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


class CudaMeansCpu(TorchFunctionMode):
    """Sends every tensor that asks for a CUDA device to the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        mapped = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        return func(*(_on_cpu(value) for value in args), **mapped)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Stands for a synchronisation: the interpreter runs a kernel to its end."""


def _no_capability(*args: Any, **kwargs: Any) -> tuple[int, int]:
    return (0, 0)


def install() -> None:
    """Fills in the platform and the few torch calls that raise without a GPU."""
    torch.cuda.synchronize = _nothing
    torch.accelerator.synchronize = _nothing
    torch.cuda.get_device_capability = _no_capability

    import vllm.platforms
    from vllm.platforms.interface import UnspecifiedPlatform

    unspecified: Any = UnspecifiedPlatform
    unspecified.device_type = "cpu"
    unspecified.num_compute_units = classmethod(lambda cls, device_id=0: COMPUTE_UNITS)
    # NVML alone would make this a CUDA platform, also for a torch without CUDA.
    platforms: Any = vllm.platforms
    if not vllm.platforms.current_platform.is_unspecified():
        platforms._current_platform = UnspecifiedPlatform()
