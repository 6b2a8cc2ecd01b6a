# SPDX-License-Identifier: Apache-2.0
"""The implementations of the 1x1xK projection and of the gate round it."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from evals import vllm_tree

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
FORMS = ("dot", "gate", "output")
"""The projection alone; with its sigmoid; and that times an expert's output of K."""
KERNEL = r"^_tiny_dot_kernel"
OUTPUT_KERNEL = r"^_gated_output_kernel"
TWO_LAUNCHES = "triton, then multiply"
"""The output as patch 0003 leaves it; what one launch must be bit-equal to."""
TOKENS = 32
DEVICE = "cuda"
_TINY_DOT = "vllm.model_executor.layers.tiny_dot"
_OUTPUT = "vllm.model_executor.layers.shared_expert_gate_triton"

Call = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Arm:
    """One implementation.

    Attributes:
        call: Of what `make` returns: one token [1, K], the weight [1, K] and, for an
            output, the expert's [1, K].
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


def chained(dot: Call, form: str) -> Call:
    """The form as a chain of launches behind a projection."""
    if form == "output":
        return lambda x, weight, expert: F.sigmoid(dot(x, weight)) * expert
    if form == "gate":
        return lambda x, weight: F.sigmoid(dot(x, weight))
    return dot


def available(case: Case) -> dict[str, Arm]:
    """The arms that this platform has for a case, BLAS first."""
    dots: dict[str, Call] = {"blas": F.linear}
    if torch.version.hip and case.k % 8 == 0:
        ops: Any = importlib.import_module("vllm._custom_ops")
        units = torch.cuda.get_device_properties(0).multi_processor_count
        if hasattr(torch.ops, "_rocm_C") and hasattr(torch.ops._rocm_C, "wvSplitK"):
            dots["wvsplitk"] = lambda x, weight: ops.wvSplitK(weight, x, units)
    dots["eager"] = _eager
    arms = {n: Arm(n, chained(dot, case.form), {}) for n, dot in dots.items()}
    return arms | {arm.name: arm for arm in fused(case)}


def fused(case: Case) -> list[Arm]:
    """The series' kernels for a case, and those that they replaced."""
    tree: Any = importlib.import_module(_TINY_DOT)
    bound = getattr(tree, "TINY_DOT_MAX_K", None)
    if bound is not None and case.k > bound:
        return []
    if case.form == "output":
        gate = partial(tree.tiny_dot_triton, apply_sigmoid=True)
        arms = [Arm(TWO_LAUNCHES, lambda x, w, e: gate(x, w) * e, {KERNEL: 1})]
        if vllm_tree.has(_OUTPUT):
            call = importlib.import_module(_OUTPUT).gated_output_triton
            arms.append(Arm("triton", call, {OUTPUT_KERNEL: 1}, True))
        return arms
    words = {"apply_sigmoid": case.form == "gate"}
    arms = [Arm("triton", partial(tree.tiny_dot_triton, **words), {KERNEL: 1}, True)]
    # A tree that still has a bound has the bounded form itself.
    bounded: Any = importlib.import_module("evals.bounded_dot")
    if bound is None and case.k <= bounded.MAX_K:
        call = partial(bounded.bounded_dot, **words)
        arms.insert(0, Arm("bounded", call, {bounded.KERNEL: 1}, True))
    return arms


def foreign(arm: Arm) -> list[str]:
    """Patterns of the kernels that an arm must not run."""
    return [name for name in (KERNEL, OUTPUT_KERNEL) if name not in arm.claims]


def make(case: Case, seed: int) -> tuple[torch.Tensor, ...]:
    """Fresh random operands; the logit stays off the flat ends of the sigmoid."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    rows = 3 if case.form == "output" else 2
    made = torch.randn(rows, 1, case.k, generator=generator, device=DEVICE)
    made[0] /= case.k**0.5
    return tuple(made.to(DTYPES[case.dtype]))


def disagreement(case: Case, arm: Arm, seed: int) -> str:
    """How an arm is wrong, against fp64 on fresh operands; empty where it is not.

    The bound is that of the coarsest arm: each product rounded to the dtype, and the
    result rounded twice, or once more for its product with the expert's output.
    """
    operands = make(case, seed)
    x, weight, *rest = (operand.double() for operand in operands)
    products = x * weight
    expected = products.sum(-1, keepdim=True)
    eps = torch.finfo(DTYPES[case.dtype]).eps
    bound = eps * (products.abs().sum(-1, keepdim=True) + 2 * expected.abs())
    if case.form != "dot":
        expected, bound = torch.sigmoid(expected), bound / 4 + eps
    for expert in rest:
        expected = expected * expert
        bound = bound * expert.abs() + eps * expected.abs()
    got = arm.call(*operands).double()
    wrong = ~((got - expected).abs() <= bound)
    if got.shape == expected.shape and not wrong.any():
        return ""
    at = int(wrong.flatten().int().argmax()) if got.shape == expected.shape else 0
    pair = got.flatten()[at].item(), expected.flatten()[at].item()
    return f"{case.words()}: {arm.name} gives {pair[0]}, {pair[1]} is right"


def differing(case: Case, arms: dict[str, Arm], seed: int) -> dict[str, int]:
    """On how many of TOKENS fresh tokens the last arm differs in any bit, by arm."""
    if case.form == "dot" or "triton" not in arms:
        return {}
    counts = dict.fromkeys((name for name in arms if name != "triton"), 0)
    for token in range(TOKENS):
        operands = make(case, seed + token)
        got = arms["triton"].call(*operands)
        for name in counts:
            counts[name] += not torch.equal(got, arms[name].call(*operands))
    return counts
