# SPDX-License-Identifier: Apache-2.0
"""Times GPU work by graph replay, and counts the kernels that a graph runs."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from evals.blocks import Slot

REPLAYS_AT_LEAST = 3
# HIP reports the last private cache; behind it lies a shared one that it does not
# report. Largest of each family, in MiB.
_SHARED_CACHE_MIB = {"gfx94": 256, "gfx95": 256, "gfx11": 96, "gfx12": 64}

Call = Callable[[Any], object]


@dataclass(frozen=True)
class Graph:
    """A captured graph.

    Attributes:
        calls: How many calls of the measured function one replay makes.
        replays: How many replays make one sample.
    """

    graph: Any
    calls: int
    replays: int


def last_level_cache() -> int:
    """Bytes of the largest cache that data can survive in between two calls."""
    properties = torch.cuda.get_device_properties(0)
    arch = getattr(properties, "gcnArchName", "")
    sizes = [mib for name, mib in _SHARED_CACHE_MIB.items() if arch.startswith(name)]
    return max([properties.L2_cache_size, *(mib << 20 for mib in sizes)])


def capture(call: Call, sets: Sequence[Any], calls: int, sample_ms: float) -> Graph:
    """Captures `calls` calls, one buffer set after another.

    Args:
        call: The measured function; takes one buffer set.
        sets: The buffer sets that it rotates over.
        calls: Calls in the graph, a multiple of the number of sets.
        sample_ms: What one sample should last at least.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call(sets[0])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for number in range(calls):
                call(sets[number % len(sets)])
    once = Graph(graph, calls, REPLAYS_AT_LEAST)
    took_ms = sample_us(once) * calls / 1e3
    return Graph(graph, calls, max(REPLAYS_AT_LEAST, round(sample_ms / took_ms)))


def sample_us(graph: Graph) -> float:
    """One sample: µs per call, over replays that follow warming ones."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(max(1, graph.replays // 4)):
        graph.graph.replay()
    torch.cuda.synchronize()
    start.record()
    for _ in range(graph.replays):
        graph.graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / (graph.replays * graph.calls)


def interleave(
    captures: Mapping[str, Callable[[], Graph]], slots: Sequence[Slot]
) -> list[tuple[Slot, float]]:
    """Samples the arms in the order of the slots.

    Two graphs of the same calls can differ by percents for as long as they live, so
    each half of a block captures its own, in that half's order.
    """
    runs = []
    for _, half in itertools.groupby(slots, lambda slot: (slot.block, slot.half)):
        mine = list(half)
        graphs = {slot.arm: captures[slot.arm]() for slot in mine}
        runs += [(slot, sample_us(graphs[slot.arm])) for slot in mine]
        # Their memory is the next half's.
        del graphs
    return runs


def kernels(graph: Graph) -> Counter[str]:
    """Names and numbers of what one replay launches on the device."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    graph.graph.replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        graph.graph.replay()
        torch.cuda.synchronize()
    return Counter(
        event.name
        for event in profiled.events()
        if event.device_type == DeviceType.CUDA
    )


def per_call(counts: Mapping[str, int], calls: int) -> dict[str, float]:
    """Launches of each kernel per call of the measured function."""
    return {name: number / calls for name, number in sorted(counts.items())}


def misfit(
    counts: Mapping[str, float],
    claims: Mapping[str, int],
    foreign: Sequence[str],
    alone: bool,
) -> str:
    """Why these launches are not what an arm claims to run; empty if they are.

    Args:
        counts: Launches per call by kernel name.
        claims: Patterns of kernel names, and how often each runs in a call.
        foreign: Patterns of the kernels of other arms.
        alone: Whether nothing but the claimed kernels may run.
    """
    if not counts:
        return "it launched no kernel"
    claimed = set()
    for pattern, number in claims.items():
        names = [name for name in counts if re.search(pattern, name)]
        claimed.update(names)
        found = sum(counts[name] for name in names)
        if found != number:
            return f"{pattern} ran {found:g} times a call, not {number}"
    for pattern in foreign:
        if names := [name for name in counts if re.search(pattern, name)]:
            return f"it ran {names[0]}, a kernel of another arm"
    if alone and (others := sorted(set(counts) - claimed)):
        return f"it ran {others[0]} besides what it claims"
    return ""


def copy_bandwidth(size: int = 1 << 31, rounds: int = 10) -> float:
    """Bytes a second, read and written, of a device-to-device copy; the best round."""
    source = torch.empty(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end))
    return 2 * size / (best / 1e3)
