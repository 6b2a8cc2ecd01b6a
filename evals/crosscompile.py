# SPDX-License-Identifier: Apache-2.0
"""Compiles what a Triton launcher would launch, for a GPU that is not there.

The launcher itself runs, on tensors without memory, against a driver that says it is
the target; so the configurations are the launcher's own and Triton specializes its
arguments as on the machine.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

WARP_SIZE = {
    "gfx90a": 64,
    "gfx942": 64,
    "gfx950": 64,
    "gfx1100": 32,
    "gfx1151": 32,
    "gfx1201": 32,
}
TARGETS = tuple(WARP_SIZE)

_WIDE = r"\b(?:global|buffer|flat)_load_(?:dwordx4|b128)\b"
_NARROW = r"\b(?:global|buffer|flat)_load_(?:[us]?short|[us]byte|[ui](?:8|16)|d16)\w*"
_ANY = r"\b(?:global|buffer|flat)_load_\w+"
_COUNTS = {
    "vgprs": r"\.vgpr_count:\s+(\d+)",
    "sgprs": r"\.sgpr_count:\s+(\d+)",
    "agprs": r"\.agpr_count:\s+(\d+)",
    "vgpr_spills": r"\.vgpr_spill_count:\s+(\d+)",
    "sgpr_spills": r"\.sgpr_spill_count:\s+(\d+)",
    "lds_bytes": r"\.group_segment_fixed_size:\s+(\d+)",
    "scratch_bytes": r"\.private_segment_fixed_size:\s+(\d+)",
    "occupancy": r"; Occupancy:\s+(\d+)",
}


@dataclass(frozen=True)
class Launch:
    """One launch that a launcher asked for.

    Attributes:
        kernel: Name of the kernel.
        config: The compile-time arguments and options, by name.
        compiled: What came out, where it was compiled.
    """

    kernel: str
    config: dict[str, Any]
    compiled: Any = field(default=None, compare=False)


class _Driver:
    """The part of a Triton driver that compiling a launch asks for."""

    def __init__(self, arch: str) -> None:
        self.arch = arch

    def get_current_device(self) -> str:
        # Triton keeps compiled kernels by device: one per target.
        return self.arch

    def get_current_stream(self, device: object) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", self.arch, WARP_SIZE[self.arch])

    def get_active_torch_device(self) -> torch.device:
        return torch.device("meta")


@contextmanager
def pretending(arch: str, *, compile_kernels: bool = True) -> Iterator[list[Launch]]:
    """Within it, launches are compiled for a target, or only noted, and never run.

    Args:
        arch: The target, one of TARGETS.
        compile_kernels: Leave it out to see the configurations alone.
    """
    seen: list[Launch] = []
    run, hip = JITFunction.run, torch.version.hip

    def compiling(self: Any, *args: Any, grid: Any, warmup: bool, **words: Any) -> Any:
        names = [param.name for param in self.params if param.is_constexpr]
        given = dict(zip(self.arg_names, args, strict=False)) | words
        config = {name: given[name] for name in names if name in given}
        config["num_warps"] = words.get("num_warps", 4)
        done = None
        if compile_kernels:
            done = run(self, *args, grid=grid, warmup=True, **words)
        seen.append(Launch(self.fn.__name__, config, done))
        return done

    triton.runtime.driver.set_active(_Driver(arch))
    JITFunction.run = compiling
    torch.version.hip = "0"
    try:
        yield seen
    finally:
        JITFunction.run, torch.version.hip = run, hip


def configurations(arch: str, call: Callable[[], object]) -> list[Launch]:
    """What a call would launch on a target."""
    with pretending(arch, compile_kernels=False) as seen:
        call()
    return seen


def compiled(arch: str, call: Callable[[], object]) -> list[Launch]:
    """What a call launches on a target, compiled."""
    with pretending(arch) as seen:
        call()
    return seen


def figures(assembly: str) -> dict[str, int]:
    """What the compiler says of a kernel: registers, spills, LDS, occupancy, loads.

    Wide loads are of 16 bytes, narrow ones of two or one.

    Args:
        assembly: The kernel's AMD assembly, with the compiler's notes.

    Raises:
        ValueError: A note is missing: the compiler writes them differently now.
    """
    found = {}
    for name, pattern in _COUNTS.items():
        match = re.search(pattern, assembly)
        if match is None and name != "agprs":
            raise ValueError(f"the assembly does not tell {name}")
        found[name] = int(match[1]) if match else 0
    found["loads"] = len(re.findall(_ANY, assembly))
    found["wide_loads"] = len(re.findall(_WIDE, assembly))
    found["narrow_loads"] = len(re.findall(_NARROW, assembly))
    return found
