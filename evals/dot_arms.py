# SPDX-License-Identifier: Apache-2.0
"""The implementations of the 1x1xK projection and of the gate round it."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
FORMS = ("dot", "gate")
"""The projection alone; the projection and its sigmoid."""
KERNEL = r"^_tiny_dot_kernel"
_TINY_DOT = "vllm.model_executor.layers.tiny_dot"

Call = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Arm:
    """One implementation.

    Attributes:
        call: Of one token [1, K] and the weight [1, K].
        claims: Patterns of kernel names, and how often each runs in a call.
        alone: Whether it runs nothing else.
    """

    name: str
    call: Call
    claims: dict[str, int]
    alone: bool = False


@dataclass(frozen=True)
class Case:
    """One point of the benchmark: K, the dtype's name, and what is computed."""

    k: int
    dtype: str
    form: str

    def words(self) -> str:
        """The case on one line."""
        return f"K={self.k} {self.dtype} {self.form}"


def _eager(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x * weight[0]).sum(dim=-1, keepdim=True, dtype=x.dtype)


def _gate(dot: Call) -> Call:
    return lambda x, weight: F.sigmoid(dot(x, weight))


def available(case: Case) -> dict[str, Arm]:
    """The arms that this platform has for a case, BLAS first."""
    tree: Any = importlib.import_module(_TINY_DOT)
    dots: dict[str, Call] = {"blas": F.linear}
    if torch.version.hip and case.k % 8 == 0:
        ops: Any = importlib.import_module("vllm._custom_ops")
        units = torch.cuda.get_device_properties(0).multi_processor_count
        if hasattr(torch.ops, "_rocm_C") and hasattr(torch.ops._rocm_C, "wvSplitK"):
            dots["wvsplitk"] = lambda x, weight: ops.wvSplitK(weight, x, units)
    dots["eager"] = _eager
    gate = case.form == "gate"
    arms = {n: Arm(n, _gate(dot) if gate else dot, {}) for n, dot in dots.items()}
    # Later kernels of the series: a line here each.
    fused: dict[str, Call] = {"triton": lambda x, w: tree.tiny_dot_triton(x, w, gate)}
    if case.k <= tree.TINY_DOT_MAX_K:
        arms |= {
            name: Arm(name, call, {KERNEL: 1}, True) for name, call in fused.items()
        }
    return arms


def make(case: Case, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Fresh random operands; the logit stays off the flat ends of the sigmoid."""
    generator = torch.Generator("cuda").manual_seed(seed)
    x, weight = torch.randn(2, 1, case.k, generator=generator, device="cuda")
    return (x / case.k**0.5).to(DTYPES[case.dtype]), weight.to(DTYPES[case.dtype])


def disagreement(case: Case, arm: Arm, seed: int) -> str:
    """How an arm is wrong, against fp64 on fresh operands; empty where it is not.

    The bound is that of the coarsest arm: each product rounded to the dtype, and the
    result rounded twice.
    """
    x, weight = make(case, seed)
    products = x.double() * weight.double()
    expected = products.sum().item()
    eps = torch.finfo(x.dtype).eps
    bound = eps * (products.abs().sum().item() + 2 * abs(expected))
    got = arm.call(x, weight).item()
    if case.form == "gate":
        expected = torch.sigmoid(torch.tensor(expected).double()).item()
        bound = bound / 4 + eps
    if abs(got - expected) <= bound:
        return ""
    return f"{case.words()}: {arm.name} gives {got}, {expected} is right"
