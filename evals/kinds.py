# SPDX-License-Identifier: Apache-2.0
"""Sorts the kernels of a decode step into kinds, and counts them per step."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CALLS = {
    "gdn_port": r"^_gdn_decode_mtp_update_kernel",
    "gdn_rowwise": r"^_gdn_decode_rowwise_kernel",
    "gdn_merged": r"^_gdn_mtp_update_kernel",
    "gdn_cuda_op": r"gdn_decode_post_conv_mtp_kernel",
    "gdn_unfused": r"^fused_sigmoid_gating_delta_rule_update_kernel",
    "tiny_dot": r"^_(tiny_dot|gated_output)_kernel",
}
"""Kernels that tell which arm ran, by the name under which they are counted."""

_KINDS = {
    "GDN": r"gdn|gated_delta|sigmoid_gating|causal_conv1d|layer_norm_fwd_kernel",
    "gate": r"tiny_dot|gated_output",
    "copies": r"^Memcpy|copy_kernel|CatArray|copy_device_to_device|elementwise.*copy",
    "fills": r"^Memset|FillFunctor",
}
OTHER = "other"


@dataclass(frozen=True)
class Launch:
    """One kernel that a profiler saw: its name, and its time on the device in µs."""

    name: str
    us: float


@dataclass
class Total:
    """Launches and device time of one kind."""

    launches: float = 0.0
    device_us: float = 0.0


def kind_of(name: str) -> str:
    """The kind of a kernel; what is none of the named ones is other."""
    for kind, pattern in _KINDS.items():
        if re.search(pattern, name):
            return kind
    return OTHER


def by_kind(launches: Iterable[Launch]) -> dict[str, Total]:
    """Launches and time of every kind, zeros included."""
    totals = {kind: Total() for kind in (*_KINDS, OTHER)}
    for launch in launches:
        total = totals[kind_of(launch.name)]
        total.launches += 1
        total.device_us += launch.us
    return totals


def calls(launches: Iterable[Launch]) -> dict[str, float]:
    """How often each of the telling kernels ran, zeros included."""
    counts = dict.fromkeys(CALLS, 0.0)
    for launch in launches:
        for name, pattern in CALLS.items():
            counts[name] += bool(re.search(pattern, launch.name))
    return counts


def per_step(
    short: Mapping[str, float], long: Mapping[str, float], steps: float
) -> dict[str, float]:
    """What one decode step adds, from two runs that differ by so many steps."""
    return {name: round((long[name] - short[name]) / steps, 3) for name in long}
