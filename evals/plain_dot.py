# SPDX-License-Identifier: Apache-2.0
"""The plainest dot in Triton: all elements at once, as no kernel of the series does.

It shows what holding many elements a lane costs, and so why the series' kernel walks
them in steps. Compiled only, never run.
"""

import re

import torch
import triton
import triton.language as tl

WARPS = 4
ELEMENTS = (32, 64, 128)
SLOW_ELEMENTS = (256, 512)


@triton.jit
def _plain_dot_kernel(  # type: ignore[no-untyped-def]
    x_ptr, weight_ptr, out_ptr, K: tl.constexpr, BLOCK: tl.constexpr
):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < K
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr, tl.sum(x * weight))


def plain_dot(elements: int, dtype: torch.dtype, warp_size: int) -> None:
    """Launches it with so many elements a lane, and as many in the dot."""
    block = elements * warp_size * WARPS
    x = torch.empty(block, device="meta", dtype=dtype)
    _plain_dot_kernel[(1,)](x, x, x, K=block, BLOCK=block, num_warps=WARPS)


def conversions(assembly: str) -> dict[str, int]:
    """How the operands become fp32: unpacked into registers of their own, or read as
    they are by a mixed-precision multiply, which exists for fp16 alone.
    """
    unpack = r"v_lshlrev_b32_e32 v\d+, 16, |v_and_b32_e32 v\d+, 0xffff0000, "
    return {
        "unpacks": len(re.findall(unpack, assembly)),
        "mixed_multiplies": len(re.findall(r"\bv_fma_mix_f32\b", assembly)),
    }
