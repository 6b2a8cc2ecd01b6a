# SPDX-License-Identifier: Apache-2.0
"""The tiny dot as patch 0002 has it: one workgroup that is sized to hold all of K.

Kept to compare with the kernel that walks K in chunks, which replaced it: both can then
run in one process. Correct up to MAX_K alone.
"""

import torch
import triton
import triton.language as tl

KERNEL = r"^_bounded_dot_kernel"
MAX_K = 131072
_LANES = 32
_HELD_PER_LANE = 128
_STEP_PER_LANE = 32
_FEWEST_WARPS = 4


@triton.jit
def _bounded_dot_kernel(  # type: ignore[no-untyped-def]
    x_ptr,
    weight_ptr,
    out_ptr,
    stride_x,
    stride_weight,
    K: tl.constexpr,
    STEP: tl.constexpr,
    APPLY_SIGMOID: tl.constexpr,
):
    offsets = tl.arange(0, STEP).to(tl.int64)
    acc = tl.zeros([STEP], dtype=tl.float32)
    for start in range(0, K, STEP):
        k = start + offsets
        x = tl.load(x_ptr + k * stride_x, mask=k < K, other=0.0)
        weight = tl.load(weight_ptr + k * stride_weight, mask=k < K, other=0.0)
        acc += x.to(tl.float32) * weight.to(tl.float32)
    dot = tl.sum(acc)
    if APPLY_SIGMOID:
        dot = tl.sigmoid(dot.to(out_ptr.dtype.element_ty).to(tl.float32))
    tl.store(out_ptr, dot.to(out_ptr.dtype.element_ty))


def bounded_dot(
    x: torch.Tensor, weight: torch.Tensor, apply_sigmoid: bool = False
) -> torch.Tensor:
    """The dot of one token [1, K] and a weight [1, K]; its sigmoid if asked for."""
    k = weight.shape[1]
    block = triton.next_power_of_2(k)
    warps = max(_FEWEST_WARPS, block // (_LANES * _HELD_PER_LANE))
    out = x.new_empty((*x.shape[:-1], 1))
    _bounded_dot_kernel[(1,)](
        x,
        weight,
        out,
        x.stride(-1),
        weight.stride(1),
        K=k,
        STEP=min(block, warps * _LANES * _STEP_PER_LANE),
        APPLY_SIGMOID=apply_sigmoid,
        num_warps=warps,
    )
    return out
