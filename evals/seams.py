# SPDX-License-Identifier: Apache-2.0
"""Forces an arm inside the engine, at the seams that the patches leave, on any GPU."""

import importlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from evals.vllm_tree import TreeError, merged_module
from series.errors import UsageError

GDN_LAYER = "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn"
GATE = "vllm.model_executor.layers.shared_expert_gate"
GATE_CALLER = "vllm.model_executor.models.qwen2_moe"
LINEAR = "vllm.model_executor.layers.utils"
GDN_ARMS = {
    "unfused": "GDN_DECODE_UNFUSED",
    "port": "GDN_DECODE_TRITON_PORT",
    "rowwise": "GDN_DECODE_ROWWISE",
    "cuda_op": "GDN_DECODE_CUDA_OP",
    "merged": "GDN_DECODE_TRITON_PORT",
}
"""By arm: the constant of the layer's module that names its kernel."""
MERGED = "SERIES_MERGED_PORT"
"""Names the tree or archive of the release that ships the merged port."""
PORT_CALL = "fused_gdn_decode_post_conv_mtp_triton"
_own_port: list[Callable[..., Any]] = []


def _module(name: str, *needed: str) -> Any:
    """A module of the tree that has what a seam needs.

    Raises:
        TreeError: The tree lacks the patch that leaves the seam.
    """
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise TreeError(f"the tree has no {error.name}: apply the series.") from error
    missing = [word for word in needed if not hasattr(module, word)]
    if missing:
        raise TreeError(f"{name} has no {', '.join(missing)}: apply the series.")
    return module


def force_gdn(arm: str) -> None:
    """Lets every GDN layer that is built afterwards decode with one implementation.

    Args:
        arm: One of GDN_ARMS.

    Raises:
        TreeError: The tree lacks the patch that brings the arm.
        UsageError: The merged port is asked for, and nothing says where it is.
    """
    # Set, it would be a user's choice, which the layer must honour before the seam.
    os.environ.pop("VLLM_GDN_DECODE_KERNEL", None)
    layer = _module(GDN_LAYER, "select_gdn_decode_kernel", PORT_CALL, GDN_ARMS[arm])
    kernel = getattr(layer, GDN_ARMS[arm])
    _own_port[:] = _own_port or [getattr(layer, PORT_CALL)]
    setattr(layer, PORT_CALL, merged_port() if arm == "merged" else _own_port[0])
    reason = "the measurement asks for it" if arm == "unfused" else None
    layer.select_gdn_decode_kernel = lambda *_: (kernel, reason)


def merged_port() -> Callable[..., Any]:
    """The port of another release, in the place of the series' own.

    Raises:
        UsageError: Nothing says where it is.
        TreeError: It is not there.
    """
    source = os.environ.get(MERGED)
    if not source:
        raise UsageError("the arm merged needs --merged, a tree or archive of v0.33.0.")
    return getattr(merged_module(Path(source)), PORT_CALL)


def choose_gdn_again(layers: Iterable[Any], config: Any) -> None:
    """Lets the GDN layers of an engine choose anew, after force_gdn.

    Args:
        layers: The engine's layers, of any kind.
        config: The engine's configuration.

    Raises:
        TreeError: None of them is a GDN layer that chooses.
    """
    found = [layer for layer in layers if hasattr(layer, "_choose_gdn_decode_kernel")]
    if not found:
        raise TreeError("the engine has no GDN layer that chooses its kernel.")
    for layer in found:
        layer._choose_gdn_decode_kernel(config)


def force_gate(on: bool) -> None:
    """Lets every shared-expert gate take the series' kernel, or none, on any GPU.

    Args:
        on: Whether the patches of the gate act.

    Raises:
        TreeError: The tree lacks them.
    """
    gate = _module(GATE, "rocm_unquantized_gemm_impl")
    linear = _module(LINEAR, "_is_tiny_dot")
    # Where one op gates and multiplies the choice is made beside it, else in the MLP.
    choosers = [
        module
        for module in (_module(GATE_CALLER), gate)
        if hasattr(module, "can_fuse_shared_expert_gate")
    ]
    if not choosers:
        raise TreeError(f"nothing chooses how {GATE_CALLER} gates: apply the series.")
    for module in choosers:
        module.can_fuse_shared_expert_gate = lambda *_: on
    gate.can_gate_on_hopper = lambda *_: on
    if not on:
        linear._is_tiny_dot = gate._is_tiny_dot = lambda *_: False
        return
    import torch

    if torch.version.hip is None:
        # Of many tokens the op asks ROCm's linear, which CUDA builds cannot run.
        gate.rocm_unquantized_gemm_impl = torch.nn.functional.linear
