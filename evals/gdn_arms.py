# SPDX-License-Identifier: Apache-2.0
"""The implementations of the GDN MTP decode, each with the kernels it claims to run."""

import ctypes
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from evals import vllm_tree
from evals.gdn_case import HEAD_DIM, Buffers

PORT = "vllm.model_executor.layers.mamba.ops.gdn_decode_mtp"
ROWWISE = "vllm.model_executor.layers.mamba.ops.gdn_decode_rowwise"
MERGED = "fused_gdn_decode_post_conv_mtp_triton"
OP = "fused_gdn_decode_post_conv_mtp"
_FLA = "vllm.third_party.flash_linear_attention.ops"

Call = Callable[[Buffers], torch.Tensor]


@dataclass(frozen=True)
class Arm:
    """One implementation.

    Attributes:
        call: Runs it on one buffer set and returns its output.
        claims: Patterns of its kernels' names, and how often each runs in a call.
        alone: Whether it runs nothing else.
    """

    name: str
    call: Call
    claims: dict[str, int]
    alone: bool = True


def unfused() -> Arm:
    """The kernels of the tree's own fallback, in the layer's order.

    Left out is the zero-fill of the layer's output, which the fused path pays as well.
    """
    update = importlib.import_module(f"{_FLA}.fused_sigmoid_gating")
    norm = importlib.import_module(f"{_FLA}.layernorm_guard")

    def call(d: Buffers) -> torch.Tensor:
        a, b = d["a"].contiguous(), d["b"].contiguous()
        out, rows = d["out"], d["mixed_qkv"]
        L, HV = out.shape[:2]
        value_width = HV * HEAD_DIM
        key_width = (rows.shape[1] - value_width) // 2
        widths = [key_width, key_width, value_width]
        parts = [part.reshape(-1) for part in rows.split(widths, dim=-1)]
        joined = torch.cat(parts)
        q, k, v = (
            part.view(1, L, -1, HEAD_DIM)
            for part in joined.split([L * width for width in widths])
        )
        core, _ = update.fused_sigmoid_gating_delta_rule_update(
            A_log=d["A_log"],
            a=a,
            b=b,
            dt_bias=d["dt_bias"],
            q=q,
            k=k,
            v=v,
            scale=d["scale"],
            initial_state=d["state"],
            inplace_final_state=True,
            cu_seqlens=d["cu_seqlens"],
            ssm_state_indices=d["state_indices"],
            num_accepted_tokens=d["num_accepted_tokens"],
            use_qk_l2norm_in_kernel=True,
        )
        out.copy_(core.squeeze(0))
        return norm.rmsnorm_fn(
            out,
            d["norm_weight"],
            None,
            z=d["output_gate"],
            eps=d["norm_eps"],
            norm_before_gate=True,
            activation=d["output_gate_activation"],
        )

    claims = {
        r"^fused_sigmoid_gating_delta_rule_update_kernel": 1,
        r"^layer_norm_fwd_kernel": 1,
    }
    return Arm("unfused", call, claims, alone=False)


def fused(name: str, where: str, claims: dict[str, int]) -> Arm:
    """A function of the tree with the op's keywords, given as module:function."""
    module, function = where.split(":")
    target = getattr(importlib.import_module(module), function)
    return Arm(name, lambda d: target(**d), claims)


def cuda_op() -> Arm:
    """The CUDA op, built into the installed vLLM or loaded from a library."""
    target = getattr(torch.ops._C, OP)

    def call(d: Buffers) -> torch.Tensor:
        # Positional: the op's schema orders its arguments as the buffers are.
        target(*d.values())
        return d["out"]

    return Arm("cuda_op", call, {r"^void .*gdn_decode_post_conv_mtp_kernel<": 1})


def load(library: Path) -> None:
    """Loads a library of ops, which may link to a part of torch not loaded yet.

    Raises:
        TreeError: It does not load into this process.
    """
    umbrella = Path(torch.__file__).parent / "lib/libtorch.so"
    try:
        if umbrella.exists():
            ctypes.CDLL(str(umbrella), mode=ctypes.RTLD_GLOBAL)
        torch.ops.load_library(str(library.absolute()))
    except OSError as error:
        hint = "Build it with this Python: evals/gdn_op/build.py TREE OUT.so"
        raise vllm_tree.TreeError(f"{library} does not load: {error}.", hint) from error


def merged(source: Path) -> Arm:
    """The port that another release ships: a black box, whatever it launches."""
    target = getattr(vllm_tree.merged_module(source), MERGED)
    return Arm("merged", lambda d: target(**d), {}, alone=False)


# Later fused kernels of the series: a line here each.
TREE_ARMS: dict[str, tuple[str, dict[str, int]]] = {
    "port": (
        f"{PORT}:{MERGED}",
        {r"^_gdn_decode_mtp_update_kernel": 1, r"^_gdn_decode_mtp_norm_kernel": 1},
    ),
    "rowwise": (
        f"{ROWWISE}:fused_gdn_decode_mtp_rowwise",
        {
            r"^_gdn_decode_rowwise_kernel": 1,
            r"^_gdn_decode_rowwise_norm_kernel": 1,
        },
    ),
}


WARM_UPS = {
    "port": f"{PORT}:warmup_{MERGED}",
    "rowwise": f"{ROWWISE}:warmup_gdn_decode_rowwise",
}
"""Functions that compile what batches can reach, by arm."""


def available(op: Path | None, other: Path | None) -> tuple[dict[str, Arm], list[str]]:
    """All arms that can run here, and why the others cannot.

    Args:
        op: A library that registers the CUDA op.
        other: The tree or archive of a release that ships a port.
    """
    arms, left_out = {"unfused": unfused()}, []
    for name, (where, claims) in TREE_ARMS.items():
        module = where.split(":")[0]
        if vllm_tree.has(module):
            arms[name] = fused(name, where, claims)
        else:
            left_out.append(f"{name}: the tree has no {module}")
    if op is not None:
        load(op)
    if hasattr(torch.ops._C, OP):
        arms["cuda_op"] = cuda_op()
    else:
        left_out.append("cuda_op: not built into this vLLM, and no --op given")
    if other is not None:
        arms["merged"] = merged(other)
    else:
        left_out.append("merged: no --merged given")
    return arms, left_out
