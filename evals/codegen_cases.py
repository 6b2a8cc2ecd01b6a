# SPDX-License-Identifier: Apache-2.0
"""The launches that the series' launchers can make, one family a kernel file.

Each case calls the launcher itself on tensors without memory; nothing here repeats a
tile, a number of warps or a rule.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from evals import crosscompile, plain_dot, vllm_tree

DOT = "vllm.model_executor.layers.tiny_dot"
OUTPUT = "vllm.model_executor.layers.shared_expert_gate_triton"
GDN = "vllm.model_executor.layers.mamba.ops.gdn_decode_mtp"
ROWWISE = "vllm.model_executor.layers.mamba.ops.gdn_decode_rowwise"
# By module: its function, and what it keeps of a device.
GDN_CALLS = {
    GDN: ("fused_gdn_decode_post_conv_mtp_triton", "_warp_size"),
    ROWWISE: ("fused_gdn_decode_mtp_rowwise", "_device_traits"),
}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# Tiny-dot widths that models and the public figures use; on gfx1151, which the patches
# are for, every configuration is compiled.
WIDTHS = (1024, 2048, 4096, 8192, 16384, 65536, 131072, 262144, 1048576)
# Hidden sizes of models: the gate's K and the width of what it multiplies.
HIDDEN = (1024, 2048, 3072, 4096, 5120, 7168, 8192, 16384)
# Every small batch, then steps finer than any rule's: 1 to 1024 requests.
BATCHES = (*range(1, 32), *sorted({round(32 * 1.1**n) for n in range(37)}))
# The state pool beyond 2 GiB, as real caches are: Triton then uses 64-bit offsets.
SLOTS_BIG, SLOTS_SMALL = 20000, 16


@dataclass(frozen=True)
class Case:
    """One call of a launcher.

    Attributes:
        family: The kernel file, in short.
        label: What is asked of the launcher, in words.
        call: The call.
        in_use: Whether a launcher of the series makes it; probes are not.
        base: Whether it is one of the few that a quick check compiles.
    """

    family: str
    label: str
    call: Callable[[], object]
    in_use: bool = True
    base: bool = False


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor without memory."""
    return torch.empty(*shape, device="meta", dtype=dtype)


def dot_widths(full: bool) -> list[int]:
    """Widths that a launch can have.

    Args:
        full: Cover every configuration of the launcher too: its first, its last, and
            one element more than a power of two.
    """
    dot: Any = importlib.import_module(DOT)
    most = getattr(dot, "TINY_DOT_MAX_K", WIDTHS[-1])
    widths = {k for k in WIDTHS if k <= most}
    seen: dict[object, list[int]] = {}
    for k in range(1, most + 1 if full else 1):
        seen.setdefault(dot.tiny_dot_config(k), []).append(k)
    return sorted(widths | {k for same in seen.values() for k in (same[0], same[-1])})


def dot_cases(arch: str) -> Iterator[Case]:
    """Tiny dot: every width class, dtype and stride class, with the sigmoid or not."""
    dot: Any = importlib.import_module(DOT)
    full = arch == "gfx1151"
    for k in dot_widths(full):
        for name in ("bf16", "fp16"):
            for sigmoid in (False, True):
                for step in (1, 3) if full else (1,):
                    x = empty(1, k * step, dtype=DTYPES[name])[:, ::step]
                    label = f"K={k} {name}{' sigmoid' * sigmoid}"
                    yield Case(
                        "tiny_dot",
                        label + (f" stride {step}" if step > 1 else ""),
                        partial(dot.tiny_dot_triton, x, x, sigmoid),
                        base=k in (2048, 131072) and name == "bf16" and step == 1,
                    )


def output_cases(arch: str) -> Iterator[Case]:
    """The gated output: hidden sizes and dtypes; odd ones and strides on gfx1151."""
    output: Any = importlib.import_module(OUTPUT)
    odd = [(29, 2049, 1), (2048, 2048, 3)] if arch == "gfx1151" else []
    for k, n, step in [*((hidden, hidden, 1) for hidden in HIDDEN), *odd]:
        for name in ("bf16", "fp16"):
            x = empty(1, k * step, dtype=DTYPES[name])[:, ::step]
            expert = empty(1, n * step, dtype=DTYPES[name])[:, ::step]
            label = f"K={k} {name}" + (
                f" N={n} stride {step}" if (n, step) != (k, 1) else ""
            )
            yield Case(
                "gated_output",
                label,
                partial(output.gated_output_triton, x, x, expert),
                base=k in (2048, 8192) and name == "bf16" and step == 1,
            )


def plain_cases(arch: str, slow: bool) -> Iterator[Case]:
    """The plain dot by elements a lane, on the target that the figures are of."""
    if arch != "gfx1151":
        return
    for name in ("bf16", "fp16"):
        for count in (*plain_dot.ELEMENTS, *(plain_dot.SLOW_ELEMENTS if slow else ())):
            call = partial(
                plain_dot.plain_dot, count, DTYPES[name], crosscompile.WARP_SIZE[arch]
            )
            yield Case("plain_dot", f"{count} a lane {name}", call, in_use=False)


@dataclass(frozen=True)
class Gdn:
    """One kind of GDN layer and batch; fields are changed one at a time."""

    state: str = "fp32"
    ratio: int = 2
    tokens: int = 4
    small_pool: bool = False
    activation: str = "silu"
    weights: str = "fp32"

    def words(self) -> str:
        """What differs from the usual."""
        said = [f"state {self.state}"]
        usual = Gdn(state=self.state)
        for name in ("ratio", "tokens", "activation", "weights"):
            if getattr(self, name) != getattr(usual, name):
                said.append(f"{name} {getattr(self, name)}")
        said += ["pool below 2 GiB"] * self.small_pool
        return ", ".join(said)

    def call(self, module: str, requests: int) -> None:
        """Calls a module's kernel for a batch of so many requests."""
        function = getattr(importlib.import_module(module), GDN_CALLS[module][0])
        H, HV, L = 16, 16 * self.ratio, requests * self.tokens
        row = empty(L, (2 * H + 2 * HV) * 128)
        qkv, gate = (2 * H + HV) * 128, HV * 128
        b, a = empty(L, 2 * HV).chunk(2, dim=-1)
        ints = partial(empty, dtype=torch.int32)
        floats = partial(empty, dtype=torch.float32)
        own = partial(empty, dtype=DTYPES[self.weights])
        slots = SLOTS_SMALL if self.small_pool else SLOTS_BIG
        function(
            mixed_qkv=row[:, :qkv],
            a=a,
            b=b,
            A_log=floats(HV),
            dt_bias=own(HV),
            state_indices=ints(requests, self.tokens),
            cu_seqlens=ints(requests + 1),
            num_accepted_tokens=ints(requests),
            state=empty(slots, HV, 128, 128, dtype=DTYPES[self.state]),
            output_gate=row[:, qkv : qkv + gate].view(L, HV, 128),
            norm_weight=own(128),
            output_gate_activation=self.activation,
        )


def gdn_kinds(module: str) -> list[Gdn]:
    """The usual layer in both state dtypes, and each with one thing changed."""
    gdn: Any = importlib.import_module(module)
    kinds = []
    for state in ("fp32", "bf16"):
        kinds.append(Gdn(state))
        kinds += [Gdn(state, ratio=r) for r in gdn.HEAD_RATIOS if r != 2]
        tokens = range(1, gdn.MAX_MTP_TOKENS + 1)
        kinds += [Gdn(state, tokens=t) for t in tokens if t != 4]
        kinds += [
            Gdn(state, small_pool=True),
            Gdn(state, activation="sigmoid"),
            Gdn(state, weights="bf16"),
        ]
    return kinds


def gdn_batches(arch: str, module: str, kind: Gdn) -> dict[int, str]:
    """The smallest batch for each set of configurations that the launcher picks."""
    seen: dict[str, int] = {}
    for requests in BATCHES:
        launches = crosscompile.configurations(
            arch, partial(kind.call, module, requests)
        )
        seen.setdefault(str(launches), requests)
    return {requests: picked for picked, requests in seen.items()}


def gdn_cases(arch: str, module: str) -> Iterator[Case]:
    """Every configuration that the kernel's rule picks, for every kind of layer."""
    gdn: Any = importlib.import_module(module)
    # Any number of units reaches every tile at some batch; few do so at small ones.
    gdn.num_compute_units = lambda *_: 64
    getattr(gdn, GDN_CALLS[module][1]).cache_clear()
    for kind in gdn_kinds(module):
        for requests in gdn_batches(arch, module, kind):
            yield Case(
                module.rpartition(".")[2],
                kind.words(),
                partial(kind.call, module, requests),
                base=kind == Gdn(kind.state),
            )


def cases(arch: str, slow: bool = False) -> Iterator[Case]:
    """Every case of a target, of the kernels that the tree has."""
    yield from plain_cases(arch, slow)
    # Kernels of later patches: two lines here each.
    if vllm_tree.has(DOT):
        yield from dot_cases(arch)
    if vllm_tree.has(OUTPUT):
        yield from output_cases(arch)
    for module in filter(vllm_tree.has, GDN_CALLS):
        yield from gdn_cases(arch, module)


FILES = {
    "tiny_dot": DOT.replace(".", "/") + ".py",
    "gated_output": OUTPUT.replace(".", "/") + ".py",
    "gdn_decode_mtp": GDN.replace(".", "/") + ".py",
    "gdn_decode_rowwise": ROWWISE.replace(".", "/") + ".py",
}
"""The file of each family that the series brings."""
