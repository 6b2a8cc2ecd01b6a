# SPDX-License-Identifier: Apache-2.0
"""Runs tests written for a GPU on a CPU, under Triton's interpreter.

vLLM finds no platform there: what it then refuses to answer is answered here, and the
tests' literal device "cuda" means the CPU while one of them runs.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

NAME = "interpreted"
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


def _no_op() -> Callable[..., None]:
    """A function that stands for a synchronisation: nothing runs beside the caller."""

    # One each: torch.compile keeps what it knows of such functions by identity.
    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    return nothing


def _properties(*args: Any, **kwargs: Any) -> SimpleNamespace:
    # vLLM's ROCm platform asks for the architecture when it is imported, and tests of
    # its dispatch import it to fake its predicates.
    return SimpleNamespace(
        name=NAME,
        gcnArchName=NAME,
        multi_processor_count=COMPUTE_UNITS,
        warp_size=32,
        total_memory=0,
        major=0,
        minor=0,
    )


def _no_capability(*args: Any, **kwargs: Any) -> tuple[int, int]:
    return (0, 0)


def install() -> None:
    """Fills in the platform and the few torch calls that raise without a GPU."""
    torch.cuda.synchronize = _no_op()
    torch.accelerator.synchronize = _no_op()
    torch.cuda.get_device_properties = _properties
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
