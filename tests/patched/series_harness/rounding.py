# SPDX-License-Identifier: Apache-2.0
"""fp32 to bf16 in Triton's interpreter, rounded as hardware rounds.

The interpreter cuts the low 16 bits off. Tests written for a GPU would then need wider
tolerances on a CPU; with round-to-nearest-even they run with the ones upstream wrote.
"""

from typing import Any

import numpy as np


def to_bf16_bits(values: np.ndarray) -> np.ndarray:
    """Rounds fp32 values to bf16, ties to even, and returns the 16 bits of each."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    lowest_kept = (bits >> np.uint32(16)) & np.uint32(1)
    with np.errstate(over="ignore"):
        rounded = (bits + np.uint32(0x7FFF) + lowest_kept) >> np.uint32(16)
    # A NaN whose payload sits in the low bits would round to infinity.
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def from_bf16_bits(bits: np.ndarray) -> np.ndarray:
    """Widens 16-bit bf16 patterns to the fp32 values they stand for, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def install() -> None:
    """Makes the interpreter of the running process convert bf16 as hardware does."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder: Any = interpreter.InterpreterBuilder
    handle: Any = interpreter.TensorHandle
    stock_cast, stock_convert = builder.cast_impl, builder.create_fp_to_fp

    def converted(src: Any, dst_type: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source == tl.float32 and target == tl.bfloat16:
            return handle(to_bf16_bits(src.data), target)
        if source == tl.bfloat16 and target == tl.float32:
            return handle(from_bf16_bits(src.data), target)
        return None

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        result = converted(src, dst_type)
        return stock_cast(self, src, dst_type) if result is None else result

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, mode: Any) -> Any:
        toward_zero = getattr(mode, "name", "") == "RTZ"
        result = None if toward_zero else converted(src, dst_type)
        if result is None:
            return stock_convert(self, src, dst_type, mode)
        return result

    builder.cast_impl = cast_impl
    builder.create_fp_to_fp = create_fp_to_fp
