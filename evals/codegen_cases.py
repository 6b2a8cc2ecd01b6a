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
GDN = "vllm.model_executor.layers.mamba.ops.gdn_decode_mtp"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# Tiny-dot widths that models and the public figures use; on gfx1151, which the patches
# are for, every configuration is compiled.
WIDTHS = (1024, 2048, 4096, 8192, 16384, 65536, 131072)
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


def dot_widths() -> list[int]:
    """Widths that cover every configuration of the launcher: its first, its last, and
    one element more than a power of two.
    """
    dot: Any = importlib.import_module(DOT)
    seen: dict[object, list[int]] = {}
    for k in range(1, dot.TINY_DOT_MAX_K + 1):
        seen.setdefault(dot.tiny_dot_config(k), []).append(k)
    ends = {k for same in seen.values() for k in (same[0], same[-1])}
    return sorted(ends | {k for k in WIDTHS if k <= dot.TINY_DOT_MAX_K})


def dot_cases(arch: str) -> Iterator[Case]:
    """Tiny dot: every width class, dtype and stride class, with the sigmoid or not."""
    dot: Any = importlib.import_module(DOT)
    full = arch == "gfx1151"
    for k in dot_widths() if full else WIDTHS:
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

    def call(self, requests: int) -> None:
        """Calls the port for a batch of so many requests."""
        gdn: Any = importlib.import_module(GDN)
        H, HV, L = 16, 16 * self.ratio, requests * self.tokens
        row = empty(L, (2 * H + 2 * HV) * 128)
        qkv, gate = (2 * H + HV) * 128, HV * 128
        b, a = empty(L, 2 * HV).chunk(2, dim=-1)
        ints = partial(empty, dtype=torch.int32)
        floats = partial(empty, dtype=torch.float32)
        own = partial(empty, dtype=DTYPES[self.weights])
        slots = SLOTS_SMALL if self.small_pool else SLOTS_BIG
        gdn.fused_gdn_decode_post_conv_mtp_triton(
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


def gdn_kinds() -> list[Gdn]:
    """The usual layer in both state dtypes, and each with one thing changed."""
    gdn: Any = importlib.import_module(GDN)
    kinds = []
    for state in ("fp32", "bf16"):
        kinds.append(Gdn(state))
        kinds += [Gdn(state, ratio=r) for r in gdn.HEAD_RATIOS if r != 2]
        kinds += [Gdn(state, tokens=t) for t in (1, 2, 3, gdn.MAX_MTP_TOKENS)]
        kinds += [
            Gdn(state, small_pool=True),
            Gdn(state, activation="sigmoid"),
            Gdn(state, weights="bf16"),
        ]
    return kinds


def gdn_batches(arch: str, kind: Gdn) -> dict[int, str]:
    """The smallest batch for each set of configurations that the launcher picks."""
    seen: dict[str, int] = {}
    for requests in BATCHES:
        launches = crosscompile.configurations(arch, partial(kind.call, requests))
        seen.setdefault(str(launches), requests)
    return {requests: picked for picked, requests in seen.items()}


def gdn_cases(arch: str) -> Iterator[Case]:
    """The port: every configuration that its rule picks, for every kind of layer."""
    gdn: Any = importlib.import_module(GDN)
    # Any number of units reaches every tile at some batch; few do so at small ones.
    gdn.num_compute_units = lambda *_: 64
    gdn._warp_size.cache_clear()
    for kind in gdn_kinds():
        for requests in gdn_batches(arch, kind):
            yield Case(
                "gdn_decode_mtp",
                kind.words(),
                partial(kind.call, requests),
                base=kind == Gdn(kind.state),
            )


def cases(arch: str, slow: bool = False) -> Iterator[Case]:
    """Every case of a target, of the kernels that the tree has."""
    yield from plain_cases(arch, slow)
    # Kernels of later patches: two lines here each.
    if vllm_tree.has(DOT):
        yield from dot_cases(arch)
    if vllm_tree.has(GDN):
        yield from gdn_cases(arch)


FILES = {
    "tiny_dot": DOT.replace(".", "/") + ".py",
    "gdn_decode_mtp": GDN.replace(".", "/") + ".py",
}
"""The file of each family that the series brings."""
