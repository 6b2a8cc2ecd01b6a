# SPDX-License-Identifier: Apache-2.0
"""The GDN benchmark as far as it goes without a GPU: reference, claims, refusals."""

import io
import json
import math
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="the benchmark's inputs are torch tensors")
pytest.importorskip("scipy", reason="the statistics need requirements/evals.txt")

from evals import (  # noqa: E402
    bench_tables,
    gdn,
    gdn_arms,
    gdn_case,
    gdn_compile,
    gdn_options,
    gdn_sweep,
    replay,
    vllm_tree,
)
from evals.blocks import plan  # noqa: E402
from evals.gdn_case import HEAD_DIM, Buffers, Case  # noqa: E402
from series.errors import SeriesError, UsageError  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


def by_hand(case: Case, d: Buffers, n: int, hv: int) -> tuple[list, list]:
    """One request and value head with plain loops; outputs and states per token."""
    H, HV = case.heads
    h = hv // (HV // H)
    slot = int(d["state_indices"][n, int(d["num_accepted_tokens"][n]) - 1])
    S = d["state"][slot, hv].double().tolist()
    outputs, states = [], []
    for t in range(case.tokens):
        row = d["mixed_qkv"][n * case.tokens + t].double().tolist()
        q = row[h * HEAD_DIM : (h + 1) * HEAD_DIM]
        k = row[(H + h) * HEAD_DIM : (H + h + 1) * HEAD_DIM]
        at = (2 * H + hv) * HEAD_DIM
        v = row[at : at + HEAD_DIM]
        q = [x / math.sqrt(sum(y * y for y in q) + 1e-6) / math.sqrt(128) for x in q]
        k = [x / math.sqrt(sum(y * y for y in k) + 1e-6) for x in k]
        x = float(d["a"][n * case.tokens + t, hv]) + float(d["dt_bias"][hv])
        decay = math.exp(-math.exp(float(d["A_log"][hv])) * math.log1p(math.exp(x)))
        beta = 1 / (1 + math.exp(-float(d["b"][n * case.tokens + t, hv])))
        o = []
        for i in range(HEAD_DIM):
            S[i] = [decay * s for s in S[i]]
            delta = beta * (v[i] - sum(s * y for s, y in zip(S[i], k, strict=True)))
            S[i] = [s + delta * y for s, y in zip(S[i], k, strict=True)]
            o.append(sum(s * y for s, y in zip(S[i], q, strict=True)))
        z = d["output_gate"][n * case.tokens + t, hv].double().tolist()
        w = d["norm_weight"].double().tolist()
        rms = math.sqrt(sum(y * y for y in o) / HEAD_DIM + 1e-6)
        outputs.append(
            [y / rms * w[i] * z[i] / (1 + math.exp(-z[i])) for i, y in enumerate(o)]
        )
        states.append([list(line) for line in S])
    return outputs, states


@pytest.mark.parametrize("layout", gdn_case.LAYOUTS)
def test_the_reference_is_the_gated_delta_rule(layout: str) -> None:
    case = Case((1, 2), "fp32", 2, 3, layout)
    buffers = gdn_case.make(case, "cpu", 11)
    outputs, states = gdn_case.reference(case, buffers)
    expected, kept = by_hand(case, buffers, 1, 1)
    assert outputs[1, :, 1].tolist() == [
        pytest.approx(row, rel=1e-9, abs=1e-12) for row in expected
    ]
    assert states[1, 2, 1, 5].tolist() == pytest.approx(kept[2][5], rel=1e-9)


def exact(case: Case) -> Callable[[Buffers], torch.Tensor]:
    """An arm that is right: the reference, rounded as the op rounds."""

    def call(d: Buffers) -> torch.Tensor:
        outputs, states = gdn_case.reference(case, d)
        d["state"][d["state_indices"].long()] = states.to(d["state"].dtype)
        d["out"].copy_(outputs.reshape(d["out"].shape))
        return d["out"]

    return call


def wrong(case: Case, how: str) -> Callable[[Buffers], torch.Tensor]:
    def call(d: Buffers) -> torch.Tensor:
        out = exact(case)(d)
        if how == "out":
            out[0] *= 1.5
        elif how == "hole":
            out[-1, -1, -1] = float("nan")
        elif how == "state":
            d["state"][-1, -1, -1, -1] += 0.1
        elif how == "no state":
            d["state"][1] = float("nan")
        elif how == "null slot":
            d["state"][0, 0, 0, 0] = 0
        return out

    return call


@pytest.mark.parametrize("state", list(gdn_case.STATES))
def test_a_right_arm_agrees(state: str) -> None:
    case = Case((1, 2), state, 3, 4)
    found = gdn_case.agreement(case, exact(case), "cpu", 3)
    assert found.problem == ""
    assert 0 < found.out < gdn_case.OUT_LIMIT
    assert 0 < found.state < gdn_case.STATE_LIMIT[state]


@pytest.mark.parametrize("how", ["out", "hole", "state", "no state", "null slot"])
def test_a_wrong_arm_does_not_agree(how: str) -> None:
    case = Case((1, 1), "fp32", 2, 2)
    found = gdn_case.agreement(case, wrong(case, how), "cpu", 3)
    assert {"out": "output", "hole": "output", "null slot": "null slot"}.get(
        how, "state"
    ) in found.problem


def test_inputs_are_those_of_the_layer() -> None:
    case = Case((2, 4), "bf16", 3, 4)
    packed = gdn_case.make(case, "cpu", 1)
    width = (2 * 2 + 2 * 4) * HEAD_DIM
    assert packed["mixed_qkv"].stride() == (width, 1)
    assert packed["output_gate"].stride() == (width, HEAD_DIM, 1)
    assert packed["a"].stride() == (8, 1)
    assert gdn_case.make(case, "cpu", 1)["state"].equal(packed["state"])
    assert not gdn_case.make(case, "cpu", 2)["state"].equal(packed["state"])
    accepted = packed["num_accepted_tokens"]
    assert 1 <= int(accepted.min()) <= int(accepted.max()) <= 4


def test_traffic_is_counted_as_the_anchors_do() -> None:
    case = Case((16, 32), "fp32", 8, 4)
    assert case.floor_bytes / 4.3e12 * 1e6 == pytest.approx(19.8, abs=0.1)
    assert Case((16, 48), "bf16", 128).floor_bytes / 4.3e6 == pytest.approx(240, abs=1)


def test_cold_sets_exceed_the_cache_four_times() -> None:
    small, large = Case((16, 32), "bf16", 1), Case((16, 48), "fp32", 128)
    cache = 60 << 20
    assert gdn_case.rotated(small, cache) * small.set_bytes > 4 * cache
    assert gdn_case.rotated(large, cache) == 2


CLAIMS = {r"^_update": 1, r"^_norm": 1}


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({"_update": 1, "_norm": 1}, ""),
        ({}, "no kernel"),
        ({"_update": 1}, "_norm ran 0 times"),
        ({"_update": 2, "_norm": 1}, "_update ran 2 times"),
        ({"_update": 1, "_norm": 1, "fill": 1}, "besides what it claims"),
        ({"_update": 1, "_norm": 1, "void op<1>": 1}, "a kernel of another arm"),
    ],
)
def test_claims_are_held_against_the_kernels_that_ran(
    counts: dict[str, float], says: str
) -> None:
    found = replay.misfit(counts, CLAIMS, [r"^void op<"], alone=True)
    assert (says in found) if says else not found


def test_a_black_box_may_run_anything_but_another_arms_kernels() -> None:
    assert not replay.misfit({"theirs": 3}, {}, [r"^_update"], alone=False)
    assert replay.misfit({"_update": 1}, {}, [r"^_update"], alone=False)
    assert replay.misfit({}, {}, [], alone=False)


def test_settings_of_the_sweep_fit_a_warp() -> None:
    found = {s.name for s in gdn_sweep.tiles((8, 32, 128), (1, 4, 16), 4, 128)}
    assert {"rule", "t8", "t8/w1", "t32/w1", "t32/w4", "t128/w16"} <= found
    assert "t128/w1" not in found
    assert "t8/w16" not in found
    in_turns = {s.name for s in gdn_sweep.tiles((128,), (1, 4), 4, 32)}
    assert in_turns == {"rule", "t128", "t128/w1", "t128/w4"}


class Settings(NamedTuple):
    """As the rowwise kernel's rule answers."""

    rows: int = 8
    num_warps: int = 1
    lanes: int = 16
    prefetch: int = 4
    max_registers: int | None = 96
    state_load: str = "evict_first"
    dependent: bool = True


def test_a_sweep_round_a_rules_choice_changes_one_thing_at_a_time() -> None:
    rule = Settings()
    found = gdn_sweep.around(rule)
    assert found[0] == gdn_sweep.Setting()
    forced = [one.forced["settings"] for one in found[1:]]
    assert tuple(rule) not in forced
    assert len({one.name for one in found}) == len(found) == len(set(forced)) + 1
    names = [one.name for one in found]
    assert {"rows 16", "lanes 8", "prefetch 1", "state_load plain"} <= {*names}
    for one, values in zip(found[1:], forced, strict=True):
        changed = [a for a, b in zip(rule, values, strict=True) if a != b]
        assert len(changed) == 1 or one.name.startswith("rows"), one
    free = [one.name for one in gdn_sweep.around(rule, capped=False)]
    assert len(free) == len(names) - 3
    assert not any(name.startswith("max_registers") for name in free)


def test_only_a_batchs_last_requests_are_held_against_the_reference() -> None:
    case = Case((1, 2), "fp32", 5, 3)
    buffers = gdn_case.make(case, "cpu", 3)
    outputs, states = gdn_case.reference(case, buffers)
    part, last = gdn_case.last_requests(case, buffers, 2)
    assert (part.requests, part.tokens) == (2, 3)
    some, kept = gdn_case.reference(part, last)
    assert torch.equal(some, outputs[-2:])
    assert torch.equal(kept, states[-2:])


def row(**more: object) -> dict:
    samples = {"unfused": [20.0, 21.0, 22.0], "port": [7.0, 7.1, 7.2]}
    one = {"samples": samples, "compared": {}}
    return {
        "shape": "16x32",
        "state": "fp32",
        "requests": 8,
        "tokens": 4,
        "floor_us": 2.5,
        "warm": one,
        "cold": {**one, "compared": compared()},
        "kernels": {"port": {"_update": 1.0, "_norm": 1.0}},
        **more,
    }


def compared(control: float = 7.0) -> dict:
    values = {"unfused": 21.0, "port": 7.0, gdn.CONTROL: control}
    runs = [(slot, values[slot.arm]) for slot in plan([*values], 4)]
    return gdn.compared(runs, "unfused", "port", 1)


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = {
        "samples": {"rule": [7.0], "t8/w1": [6.0]},
        "chosen": 32,
        "best": "t8/w1",
        "rule_over_best": 7 / 6,
    }
    bench_tables.show_times([row()], 4.3e12)
    bench_tables.show_sweep([row(sweep=sweep), row()])
    bench_tables.show_counts([row()])
    said = capsys.readouterr().out
    assert "21.0 / 21.0" in said
    assert "7.1 / 7.1" in said
    assert "FASTER" in said
    assert "A/A: 1 SAME\n" in said
    assert "1.167" in said
    assert "1 x _update, 1 x _norm" in said


def test_a_control_that_differs_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = [("here", compared()), ("there", compared(6.9)), ("nowhere", {})]
    bench_tables.show_controls(found)
    said = capsys.readouterr().out.splitlines()
    assert said == ["A/A: 1 SAME, 1 FASTER", "the control differs at there: 0.986"]


def test_the_control_is_compared_with_what_it_repeats() -> None:
    found = compared()
    assert found["port"]["verdict"] == "FASTER"
    assert found[gdn.CONTROL]["base"] == "port"
    assert found[gdn.CONTROL]["verdict"] == "SAME"


@pytest.mark.parametrize(
    "words",
    [
        ["--shapes", "16"],
        ["--shapes", "16x24"],
        ["--shapes", "0x16"],
        ["--states", "fp64"],
        ["--requests", "0"],
        ["--requests", "many"],
        ["--tokens", "4,9"],
        ["--jobs", "0"],
    ],
)
def test_words_that_name_no_case(words: list[str]) -> None:
    with pytest.raises(UsageError):
        gdn_options.cases_of(gdn_options.parse(words))


def test_the_cases_are_all_combinations() -> None:
    words = ["--shapes", "16x32,1x8", "--requests", "1,8", "--tokens", "2,3"]
    cases = gdn_options.cases_of(gdn_options.parse(words))
    assert len(cases) == 16
    assert cases[-1] == Case((1, 8), "bf16", 8, 3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_fails() -> None:
    for words in (["-m", "evals.gdn"], [str(ROOT / "evals/gdn.py")]):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert "sees no GPU" in done.stderr
        assert "Traceback" not in done.stderr


MODULE = f"""
NAME = __name__

def {gdn_arms.MERGED}(**words):
    return words
"""


@pytest.mark.parametrize("kind", ["file", "tree", "archive"])
def test_the_merged_port_is_taken_from_wherever_it_is(
    kind: str, tmp_path: Path
) -> None:
    source = tmp_path / vllm_tree.MERGED_MODULE
    source.parent.mkdir(parents=True)
    source.write_text(MODULE)
    given = {"file": source, "tree": tmp_path}.get(kind)
    if given is None:
        given = tmp_path / "vllm-9.tar.gz"
        with tarfile.open(given, "w:gz") as tar:
            info = tarfile.TarInfo(f"vllm-9/{vllm_tree.MERGED_MODULE}")
            info.size = len(MODULE)
            tar.addfile(info, io.BytesIO(MODULE.encode()))
    module = vllm_tree.merged_module(given)
    assert module.NAME.endswith("_merged_gdn_decode")
    assert module.fused_gdn_decode_post_conv_mtp_triton(scale=1) == {"scale": 1}


def test_a_release_without_the_port_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "vllm-9.tar.gz", "w:gz"):
        pass
    for given in (tmp_path, tmp_path / "none", tmp_path / "vllm-9.tar.gz"):
        with pytest.raises(vllm_tree.TreeError):
            vllm_tree.merged_module(given)


PROGRAM = """
import sys, tempfile
from pathlib import Path
from evals import vllm_tree
vllm_tree.prepare()
vllm_tree.merged_module(Path(sys.argv[1]))
vllm_tree.temporary_folder("more-")
print(len(list(Path(tempfile.gettempdir()).iterdir())))
if sys.argv[2:]:
    raise KeyboardInterrupt
"""


@pytest.mark.parametrize("how", [[], ["interrupted"]])
def test_no_temporary_folder_outlives_its_process(how: list, tmp_path: Path) -> None:
    given, temporary = tmp_path / "vllm-9.tar.gz", tmp_path / "temporary"
    temporary.mkdir()
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").touch()
    with tarfile.open(given, "w:gz") as tar:
        info = tarfile.TarInfo(f"vllm-9/{vllm_tree.MERGED_MODULE}")
        tar.addfile(info)
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(given), *how],
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["3"], done.stderr
    assert bool(done.returncode) == bool(how)
    assert list(temporary.iterdir()) == []


def test_a_kernel_that_does_not_run_is_told_before_anything_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def pool(run: object, work: list, jobs: int) -> list[str]:
        asked.extend(work)
        return ["", "OutOfResources: shared memory"]

    monkeypatch.setattr(gdn_compile, "in_parallel", pool)
    cases = [
        Case((1, 2), state, requests)
        for state in ("fp32", "bf16")
        for requests in (4, 1)
    ]
    with pytest.raises(SeriesError) as caught:
        gdn_compile.everything(cases, {"unfused", "port"}, None, 2)
    assert "1x2 bf16 1 requests: a kernel does not run: OutOfRes" in caught.value.what
    assert "--arms" in str(caught.value.hint)
    # Each kind of layer once, as a batch of one, with the largest batch beside it.
    assert [(case.state, case.requests, most) for case, *_, most in asked] == [
        ("fp32", 1, 4),
        ("bf16", 1, 4),
    ]
    assert asked[0][1] == ["port", "unfused"]


def test_each_item_of_the_pool_says_why_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    last = gdn_compile.in_parallel(json.loads, ["1", "no json"], 4)
    assert len(last) == 2
    assert last[1].startswith("JSONDecodeError: Expecting value")
