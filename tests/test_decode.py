# SPDX-License-Identifier: Apache-2.0
"""The engine's comparison as far as it goes without an engine."""

import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("scipy", reason="the statistics need requirements/evals.txt")

from evals import ab, decode, decode_arm, engine, kinds, seams
from evals.kinds import Launch
from evals.vllm_tree import TreeError
from series.errors import UsageError


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_gdn_decode_mtp_norm_kernel", "GDN"),
        ("void vllm::gdn::gdn_decode_post_conv_mtp_kernel<float, 4>(...)", "GDN"),
        ("_causal_conv1d_update_kernel", "GDN"),
        ("_tiny_dot_kernel", "gate"),
        ("_gated_output_kernel", "gate"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("void at::native::direct_copy_kernel_cuda(...)", "copies"),
        ("void at::native::CatArrayBatchedCopy_contig<...>", "copies"),
        ("Memset (Device)", "fills"),
        ("void at::native::vectorized_elementwise_kernel<4, FillFunctor>", "fills"),
        ("nvjet_tst_64x8", "other"),
    ],
)
def test_kinds(name: str, kind: str) -> None:
    assert kinds.kind_of(name) == kind


def test_a_step_is_what_a_longer_run_adds() -> None:
    port, other = Launch("_gdn_decode_mtp_update_kernel", 7.0), Launch("nvjet", 2.0)
    short, long = [other] * 5 + [port] * 30, [other] * 25 + [port] * 330
    before, after = kinds.calls(short), kinds.calls(long)
    assert kinds.per_step(before, after, 10)["gdn_port"] == 30
    assert kinds.per_step(before, after, 10)["gdn_cuda_op"] == 0
    totals = kinds.by_kind(long)
    assert (totals["GDN"].launches, totals["GDN"].device_us) == (330, 2310)
    assert totals["fills"].launches == 0


def test_every_arm_is_held_to_its_kernels() -> None:
    assert decode.claims("gdn", "port") == [
        *("--ran", "port:gdn_port"),
        *("--idle", "port:gdn_rowwise"),
        *("--idle", "port:gdn_merged"),
        *("--idle", "port:gdn_cuda_op"),
        *("--idle", "port:gdn_unfused"),
    ]
    for arm in seams.GDN_ARMS:
        assert f"gdn_{arm}" in kinds.CALLS
    assert decode.claims("gate", "off") == ["--idle", "off:tiny_dot"]
    assert decode.claims("gate", "on") == ["--ran", "on:tiny_dot"]


def test_the_comparison_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(seams.MERGED, raising=False)
    seen = []
    monkeypatch.setattr(ab, "main", lambda *words: seen.append(words) or 0)
    words = ["gdn", "--arms", "unfused,port", "--requests", "1,8", "--layers", "4"]
    assert decode.main([*words, "--", "--blocks", "2", "--resume"]) == 0
    asked, command, host = seen[0]
    assert host is None
    assert command == ["evals.decode", *words, "--", "--blocks", "2", "--resume"]
    args = ab.parse(asked)
    assert (args.blocks, args.resume) == (2, True)
    assert args.unchanged == []
    arms = ab.arms_of(args)
    assert [arm.name for arm in arms] == ["unfused", "port", "control"]
    own = decode_arm.parse(arms[1].command[2:])
    assert (own.arm, own.requests, own.layers) == ("port", "1,8", 4)
    assert arms[0].ran == ["gdn_unfused"]
    with pytest.raises(UsageError):
        decode.main(["gdn", "--arms", "unfused,merged"])
    decode.main(["gate"])
    words = ["gdn", "--tokens", "132", "--repeats", "1", "--one-process"]
    decode.main(words)
    one = ab.arms_of(ab.parse(seen[2][0]))
    assert seen[2][2] is decode.one_engine_of
    own = decode_arm.parse(one[0].command[2:])
    assert (own.tokens, own.repeats) == (132, 1)
    decode.main(["gate", "--prompts", "3"])
    own = decode_arm.parse(ab.arms_of(ab.parse(seen[3][0]))[0].command[2:])
    assert (own.prompts, own.repeats) == (3, 3)
    assert ab.parse(seen[1][0]).unchanged == ["ttft_ms"]
    gate = ab.arms_of(ab.parse(seen[1][0]))
    assert [arm.name for arm in gate] == ["off", "on", "control"]
    assert decode_arm.parse(gate[1].command[2:]).arm == "on"


def put(monkeypatch: pytest.MonkeyPatch, name: str, **members: object) -> ModuleType:
    """A stand-in for a module of the tree, and for the packages above it."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        part = ".".join(parts[:end])
        made = ModuleType(part)
        made.__path__ = []
        if end == len(parts) or part not in sys.modules:
            monkeypatch.setitem(sys.modules, part, made)
    vars(sys.modules[name]).update(members)
    return sys.modules[name]


@pytest.mark.parametrize("arm", list(seams.GDN_ARMS))
def test_the_gdn_seam(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arm: str
) -> None:
    names = {constant: constant.lower() for constant in seams.GDN_ARMS.values()}
    layer = put(
        monkeypatch,
        seams.GDN_LAYER,
        select_gdn_decode_kernel=lambda *_: None,
        **{seams.PORT_CALL: "the series' own"},
        **names,
    )
    monkeypatch.setattr(seams, "_own_port", [])
    file = tmp_path / "port.py"
    file.write_text(f"{seams.PORT_CALL} = 'the merged one'\n")
    monkeypatch.setenv(seams.MERGED, str(file))
    monkeypatch.setenv("VLLM_GDN_DECODE_KERNEL", "triton")
    for forced in ("merged", arm):
        seams.force_gdn(forced)
    kernel, reason = layer.select_gdn_decode_kernel("layer", "config")
    assert kernel == seams.GDN_ARMS[arm].lower()
    assert (reason is None) == (arm != "unfused")
    assert getattr(layer, seams.PORT_CALL) == (
        "the merged one" if arm == "merged" else "the series' own"
    )
    assert "VLLM_GDN_DECODE_KERNEL" not in os.environ


def test_the_merged_arm_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(seams.MERGED, raising=False)
    with pytest.raises(UsageError, match="--merged"):
        seams.merged_port()


def test_a_tree_without_the_seam_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, seams.GDN_LAYER)
    with pytest.raises(TreeError, match="select_gdn_decode_kernel"):
        seams.force_gdn("port")
    put(monkeypatch, seams.GATE_CALLER, can_fuse_shared_expert_gate=None)
    monkeypatch.setitem(sys.modules, seams.GATE, None)
    with pytest.raises(TreeError):
        seams.force_gate(True)


@pytest.mark.parametrize("beside_the_op", [True, False])
@pytest.mark.parametrize("on", [True, False])
def test_the_gate_seam(
    monkeypatch: pytest.MonkeyPatch, on: bool, beside_the_op: bool
) -> None:
    pytest.importorskip("torch")
    caller = put(monkeypatch, seams.GATE_CALLER)
    gate = put(monkeypatch, seams.GATE, rocm_unquantized_gemm_impl=None)
    linear = put(monkeypatch, seams.LINEAR, _is_tiny_dot=lambda *_: True)
    with pytest.raises(TreeError, match="nothing chooses"):
        seams.force_gate(on)
    chooser = gate if beside_the_op else caller
    chooser.can_fuse_shared_expert_gate = None
    seams.force_gate(on)
    assert chooser.can_fuse_shared_expert_gate(None, None) is on
    assert gate.can_gate_on_hopper(None, None) is on
    assert linear._is_tiny_dot(None, None, None) is on
    assert (gate.rocm_unquantized_gemm_impl is not None) == on


class Engine:
    """Answers as vLLM does: a prefill of 30 ms, 10 ms a step, two tokens a step.

    Every second prefill takes 20 ms more, as a busy CPU lets them.
    """

    def __init__(self) -> None:
        self.drafts, self.clock, self.prefills = 0, 0.0, 0

    def get_metrics(self) -> list:
        other = SimpleNamespace(name="vllm:spec_decode_num_accepted_tokens", value=9)
        return [
            other,
            SimpleNamespace(name="vllm:spec_decode_num_drafts", value=self.drafts),
        ]

    def generate(self, prompts: list, sampling: SimpleNamespace, **_: object) -> list:
        steps = (sampling.max_tokens - 1) // 2
        self.drafts += steps * len(prompts)
        self.clock += 0.03 + 0.02 * (self.prefills % 2)
        self.prefills += 1
        times = SimpleNamespace(first_token_ts=self.clock)
        self.clock += 0.01 * steps
        times.last_token_ts = self.clock
        answer = SimpleNamespace(token_ids=range(sampling.max_tokens))
        return [SimpleNamespace(metrics=times, outputs=[answer]) for _ in prompts]


def test_a_step_is_timed_between_a_short_and_a_long_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(monkeypatch, "vllm", SamplingParams=SimpleNamespace)
    fake = Engine()
    monkeypatch.setattr(engine.time, "perf_counter", lambda: fake.clock)
    asked = engine.Generator(fake, engine.prompts(8, 16, 0), True)
    ms, answer = asked.step_ms(5, 261)
    assert ms == pytest.approx(10.0)
    assert asked.step_ms(5, 261)[1] == answer != asked.step_ms(5, 259)[1]
    assert asked.step_ms(4, 4)[0] == 0.0
    assert asked.run(1)[:3] == (pytest.approx(0.03), pytest.approx(0.0), 0)
    plain = engine.Generator(fake, engine.prompts(1, 16, 0), False)
    assert plain.run(128).steps == 127


def test_prompts_are_fixed_and_differ() -> None:
    first = engine.prompts(2, 32, 0)
    assert first == engine.prompts(2, 32, 0)
    assert first[0] != first[1]
    assert first != engine.prompts(2, 32, 1)
    assert all(1000 <= id_ < 100000 for ids in first for id_ in ids)


@pytest.mark.parametrize("name", list(engine.SHAPES))
def test_the_model_is_one_that_the_engine_takes(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    shape = engine.SHAPES[name]
    if not hasattr(transformers, shape.config):
        pytest.skip(f"this transformers has no {shape.config}")
    folder = engine.model_folder(shape, 8, "float32")
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [shape.architecture]
    assert config["num_hidden_layers"] == 8
    assert config["layer_types"].count("linear_attention") == 6
    heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    assert heads == {"35b": (16, 32), "27b": (16, 48)}[name]
    assert config["mtp_num_hidden_layers"] == 1
    assert config["mamba_ssm_dtype"] == "float32"
