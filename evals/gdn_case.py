# SPDX-License-Identifier: Apache-2.0
"""One shape of the GDN MTP decode: its buffers, its fp64 reference, its traffic."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

HEAD_DIM = 128
NORM_EPS = 1e-6
SCALE = HEAD_DIM**-0.5
STATES = {"fp32": torch.float32, "bf16": torch.bfloat16}
LAYOUTS = ("packed", "dense")
# Relative error of a whole output: two roundings to bf16, and fast-math gates.
OUT_LIMIT = 6e-3
# Largest error of a state over the largest state: fp32 sums, or one bf16 rounding.
STATE_LIMIT = {"fp32": 2e-5, "bf16": 1.02 * 2**-8}

CACHE_FACTOR = 4
"""How many times the last-level cache the cold buffer sets exceed."""
LEAST_CALLS = 20
"""Of a graph."""
SHORTEST_US = 4.0
"""No call is expected to be shorter."""
MOST_BYTES = 30 << 30
MOST_CHECKED = 16
"""Requests of a batch that are held against the reference: the last ones."""

Buffers = Mapping[str, Any]
"""What one call reads and writes, by the keyword names of the op."""


@dataclass(frozen=True)
class Case:
    """One point of the benchmark.

    Attributes:
        heads: Key heads H and value heads HV on this rank.
        state: Dtype of the recurrent state, "fp32" or "bf16".
        requests: Requests in the batch.
        tokens: Tokens of each request.
        layout: "packed": activations are views of the two projections, as in the
            layer; "dense": each is a tensor of its own.
    """

    heads: tuple[int, int]
    state: str
    requests: int
    tokens: int = 4
    layout: str = "packed"

    @property
    def shape(self) -> str:
        """H x HV in words."""
        return "{}x{}".format(*self.heads)

    @property
    def state_bytes(self) -> int:
        """Bytes of one slot."""
        return self.heads[1] * HEAD_DIM * HEAD_DIM * STATES[self.state].itemsize

    @property
    def set_bytes(self) -> int:
        """Bytes of states that one call touches."""
        return self.requests * self.tokens * self.state_bytes

    @property
    def floor_bytes(self) -> int:
        """Bytes that must move: a state in, one out per token, activations, output."""
        H, HV = self.heads
        states = self.requests * (1 + self.tokens) * self.state_bytes
        row = (2 * H + 3 * HV) * HEAD_DIM * 2
        return states + self.requests * self.tokens * row

    def calls(self, sets: int, bandwidth: float, replay_ms: float) -> int:
        """Calls of a graph whose replay lasts as long, the same number on every set.

        Args:
            sets: Buffer sets that the graph rotates over.
            bandwidth: Bytes a second.
            replay_ms: Duration at least, if a call takes no longer than its bytes.
        """
        expected_us = max(SHORTEST_US, self.floor_bytes / bandwidth * 1e6)
        least = max(LEAST_CALLS, math.ceil(replay_ms * 1e3 / expected_us))
        return math.ceil(least / sets) * sets

    def words(self) -> str:
        """The case on one line."""
        tokens = "" if self.tokens == 4 else f" of {self.tokens} tokens"
        return f"{self.shape} {self.state} {self.requests} requests{tokens}"


def rotated(case: Case, cache: int) -> int:
    """Buffer sets whose states together exceed the cache four times over."""
    sets = max(2, CACHE_FACTOR * cache // case.set_bytes + 1)
    return max(2, min(sets, MOST_BYTES // case.set_bytes))


def make(case: Case, device: str, seed: int) -> Buffers:
    """Fresh random buffers; each request starts from a slot among its own."""
    generator = torch.Generator(device).manual_seed(seed)
    H, HV = case.heads
    N, T = case.requests, case.tokens
    L = N * T

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    def bf16(*shape: int) -> torch.Tensor:
        return normal(*shape).bfloat16()

    qkv, gate = (2 * H + HV) * HEAD_DIM, HV * HEAD_DIM
    if case.layout == "packed":
        mixed_qkv, z = bf16(L, qkv + gate).split([qkv, gate], dim=-1)
        b, a = bf16(L, 2 * HV).chunk(2, dim=-1)
    else:
        mixed_qkv, z = bf16(L, qkv), bf16(L, gate)
        b, a = bf16(L, HV), bf16(L, HV)
    ints = {"device": device, "dtype": torch.int32}
    accepted = torch.randint(1, T + 1, (N,), generator=generator, device=device)
    return {
        "mixed_qkv": mixed_qkv,
        "a": a,
        "b": b,
        "A_log": 0.5 * normal(HV),
        "dt_bias": 0.1 * normal(HV),
        "state_indices": torch.arange(1, L + 1, **ints).view(N, T),
        "cu_seqlens": torch.arange(0, L + 1, T, **ints),
        "num_accepted_tokens": accepted.int(),
        # Slot 0 is the null slot.
        "state": (0.1 * normal(L + 1, HV, HEAD_DIM, HEAD_DIM)).to(STATES[case.state]),
        "output_gate": z.view(L, HV, HEAD_DIM),
        "norm_weight": normal(HEAD_DIM),
        "out": torch.empty(L, HV, HEAD_DIM, device=device, dtype=torch.bfloat16),
        "scale": SCALE,
        "norm_eps": NORM_EPS,
        "output_gate_activation": "silu",
    }


def sources(buffers: Buffers) -> torch.Tensor:
    """The slot from which each request starts, [N]."""
    last = buffers["num_accepted_tokens"].long() - 1
    return buffers["state_indices"].long().gather(1, last[:, None])[:, 0]


def last_requests(case: Case, buffers: Buffers, most: int) -> tuple[Case, Buffers]:
    """The last requests of a batch, as a case and views of its buffers."""
    number = min(case.requests, most)
    tokens = number * case.tokens
    by_token = dict.fromkeys(("mixed_qkv", "a", "b", "output_gate", "out"), tokens)
    by_request = dict.fromkeys(("state_indices", "num_accepted_tokens"), number)
    views = {
        name: buffers[name][-count:] for name, count in (by_token | by_request).items()
    }
    return replace(case, requests=number), {**buffers, **views}


def reference(case: Case, buffers: Buffers) -> tuple[torch.Tensor, torch.Tensor]:
    """The op in fp64, token after token.

    Returns:
        The output [N, T, HV, 128], and the state after each token
        [N, T, HV, 128, 128].
    """
    H, HV = case.heads
    N, T = case.requests, case.tokens
    rows = buffers["mixed_qkv"].double().view(N, T, -1)
    q, k, v = rows.split([H * HEAD_DIM, H * HEAD_DIM, HV * HEAD_DIM], dim=-1)
    q, k = (x.reshape(N, T, H, HEAD_DIM) for x in (q, k))
    q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    q, k = (x.repeat_interleave(HV // H, dim=2) for x in (q, k))
    v = v.reshape(N, T, HV, HEAD_DIM)
    rate = F.softplus(buffers["a"].double() + buffers["dt_bias"].double(), threshold=99)
    decay = torch.exp(-torch.exp(buffers["A_log"].double()) * rate).view(N, T, HV)
    beta = torch.sigmoid(buffers["b"].double()).view(N, T, HV)
    h = buffers["state"][sources(buffers)].double()
    outputs, states = [], []
    for t in range(T):
        h = h * decay[:, t, :, None, None]
        error = v[:, t] - torch.einsum("nhvk,nhk->nhv", h, k[:, t])
        error = error * beta[:, t, :, None]
        h = h + error[..., None] * k[:, t, :, None, :]
        outputs.append(torch.einsum("nhvk,nhk->nhv", h, q[:, t]) * buffers["scale"])
        states.append(h)
    o = torch.stack(outputs, 1)
    o = o / (o.square().mean(-1, keepdim=True) + buffers["norm_eps"]).sqrt()
    gate = F.silu(buffers["output_gate"].double().view(N, T, HV, HEAD_DIM))
    return o * buffers["norm_weight"].double() * gate, torch.stack(states, 1)


@dataclass(frozen=True)
class Agreement:
    """How far an arm is from the reference.

    Attributes:
        out: Relative error of the whole output (2-norm).
        state: Largest error of a state, over the largest state.
        problem: What is wrong, empty if nothing is.
    """

    out: float
    state: float
    problem: str = ""


def agreement(
    case: Case, call: Callable[[Buffers], torch.Tensor], device: str, seed: int
) -> Agreement:
    """Runs an arm once on fresh inputs, outputs poisoned, against the reference."""
    buffers = make(case, device, seed)
    part, last = last_requests(case, buffers, MOST_CHECKED)
    expected, states = reference(part, last)
    start = buffers["state"][sources(buffers)].clone()
    # Every slot that the call must write holds NaN, and so does the output.
    buffers["state"][1:] = float("nan")
    buffers["state"][sources(buffers)] = start
    null_slot = buffers["state"][0].clone()
    buffers["out"].fill_(float("nan"))
    rows = part.requests * case.tokens
    whole = call(buffers)
    got = whole[-rows:].double().view_as(expected)
    found = buffers["state"][last["state_indices"].long()].double()
    out = ((got - expected).norm() / expected.norm()).item()
    state = ((found - states).abs().max() / states.abs().max()).item()
    problem = ""
    if not whole.isfinite().all():
        problem = "the output is not finite everywhere"
    elif not out <= OUT_LIMIT:
        problem = f"the output is off by {out:.1e} (limit {OUT_LIMIT:.0e})"
    elif not state <= STATE_LIMIT[case.state]:
        limit = STATE_LIMIT[case.state]
        problem = f"a state is off by {state:.1e} (limit {limit:.0e})"
    elif not torch.equal(buffers["state"][0], null_slot):
        problem = "it wrote to slot 0, the null slot"
    return Agreement(out, state, problem)
