# SPDX-License-Identifier: Apache-2.0
"""What the cross-compilation reads, compares and shows; and the record against now."""

import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

pytest.importorskip("rich")

from evals import codegen, codegen_run, codegen_tables, record

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build/vllm"
HAS_TRITON = (
    util.find_spec("triton") is not None and util.find_spec("torch") is not None
)
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="needs torch and triton")

NOTES = """
	global_load_dwordx4 v[0:3], v4, s[0:1]
	buffer_load_b128 v[1:4], v43, s[4:7], 0 offen
	buffer_load_u16 v5, v43, s[4:7], 0 offen
	global_load_dword v5, v43, s[4:5]
	global_store_dwordx4 v0, v[0:3], s[0:1]
	v_lshlrev_b32_e32 v0, 16, v1
	v_and_b32_e32 v29, 0xffff0000, v1
	v_and_b32_e32 v29, 0xffff, v1
	v_fma_mix_f32 v0, v1, v2, v3 op_sel_hi:[1,1,0]
; Occupancy: 12
    .group_segment_fixed_size: 64
    .private_segment_fixed_size: 8
    .sgpr_count:     14
    .sgpr_spill_count: 3
    .vgpr_count:     98
    .vgpr_spill_count: 1
"""


@needs_triton
def test_figures_are_read_from_the_compilers_notes() -> None:
    from evals import crosscompile, plain_dot

    assert crosscompile.figures(NOTES) == {
        "vgprs": 98,
        "sgprs": 14,
        "agprs": 0,
        "vgpr_spills": 1,
        "sgpr_spills": 3,
        "lds_bytes": 64,
        "scratch_bytes": 8,
        "occupancy": 12,
        "loads": 4,
        "wide_loads": 2,
        "narrow_loads": 1,
    }
    assert plain_dot.conversions(NOTES) == {"unpacks": 2, "mixed_multiplies": 1}
    with pytest.raises(ValueError, match="occupancy"):
        crosscompile.figures(NOTES.replace("Occupancy", "Occ"))


@needs_triton
def test_holding_128_bf16_elements_a_lane_costs_every_register(tmp_path: Path) -> None:
    """The plain dot unpacks each bf16 operand into a register of its own, and spills;
    fp16 operands stay packed. This is why the series' kernel walks in steps.
    """
    call = f"""
import os, sys
os.environ |= {{"CUDA_VISIBLE_DEVICES": "", "TRITON_CACHE_DIR": {str(tmp_path)!r}}}
import json, torch
from evals import crosscompile, plain_dot
found = {{}}
for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
    (launch,) = crosscompile.compiled(
        "gfx1151", lambda: plain_dot.plain_dot(128, dtype, 32)
    )
    text = launch.compiled.asm["amdgcn"]
    found[name] = crosscompile.figures(text) | plain_dot.conversions(text)
print(json.dumps(found))
"""
    import json

    done = subprocess.run(
        [sys.executable, "-c", call], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["bf16"]["vgprs"] == 256
    assert found["bf16"]["mixed_multiplies"] == 0
    # 2 * 128 operands a lane, none packed two to a register.
    assert found["bf16"]["unpacks"] > 200
    assert found["fp16"]["vgpr_spills"] == 0
    assert found["fp16"]["unpacks"] == 0
    assert found["fp16"]["mixed_multiplies"] == 128
    assert found["fp16"]["vgprs"] < 128


def entry(**more: object) -> dict:
    return {
        "target": "gfx942",
        "family": "gdn_decode_mtp",
        "kernel": "_update",
        "label": "state fp32",
        "config": {"BV": 32, "num_warps": 4},
        "in_use": True,
        "vgprs": 60,
        "sgprs": 30,
        "agprs": 0,
        "vgpr_spills": 0,
        "sgpr_spills": 0,
        "lds_bytes": 0,
        "scratch_bytes": 0,
        "occupancy": 8,
        "loads": 10,
        "wide_loads": 4,
        "narrow_loads": 0,
        **more,
    }


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ({}, ""),
        ({"occupancy": 9, "vgprs": 50}, ""),
        ({"vgprs": 64}, ""),
        ({"vgpr_spills": 1}, "vgpr_spills 1"),
        ({"scratch_bytes": 8}, "scratch_bytes 8"),
        ({"sgpr_spills": 2}, "sgpr_spills 0 to 2"),
        ({"occupancy": 7}, "occupancy 8 to 7"),
        ({"config": {"BV": 8, "num_warps": 1}}, "not recorded"),
        ({"vgpr_spills": 1, "in_use": False}, ""),
    ],
)
def test_what_counts_as_worse_than_the_record(now: dict, says: str) -> None:
    found = codegen.regressions([entry()], [entry(**now)])
    if says:
        assert len(found) == 1
        assert says in found[0]
        assert "gfx942 _update (state fp32; BV=" in found[0]
    else:
        assert found == []


def test_a_compiled_kernel_counts_once() -> None:
    first, again = entry(hash="a"), entry(hash="a", label="another way to it")
    other = entry(hash="a", target="gfx950")
    found = codegen_run.distinct([first, again, other])
    assert [(e["target"], e["label"]) for e in found] == [
        ("gfx942", "state fp32"),
        ("gfx950", "state fp32"),
    ]
    assert "hash" not in found[0]


def test_tables_show_extremes_tiles_and_the_published_figures() -> None:
    plain = [
        entry(
            family="plain_dot",
            label=f"128 a lane {dtype}",
            in_use=False,
            unpacks=n,
            mixed_multiplies=128 - n,
            vgprs=v,
        )
        for dtype, n, v in (("bf16", 128, 256), ("fp16", 0, 92))
    ]
    entries = [entry(), entry(vgprs=90, occupancy=5, sgpr_spills=4), *plain]
    entries[1]["config"] = {"BV": 128, "num_warps": 4}
    (line,) = codegen_tables.summary(entries)
    shown = dict(zip(codegen_tables.SUMMARY_COLUMNS, line, strict=True))
    assert shown["configurations"] == "2"
    assert shown["VGPRs"] == "60 to 90"
    assert shown["occupancy"] == "5 to 8"
    assert (shown["spill VGPRs"], shown["spill SGPRs"]) == ("0", "1")
    tiles = codegen_tables.tiles(entries)
    assert [line[2] for line in tiles] == ["32", "128"]
    assert all(len(line) == len(codegen_tables.TILE_COLUMNS) for line in tiles)
    (line,) = codegen_tables.elements(entries)
    shown_elements = [*line]
    assert shown_elements[:5] == ["128", "256", "0", "128", "0"]
    assert shown_elements[-2:] == ["175", "0"]


def recorded() -> dict:
    try:
        return record.load(codegen.NAME)
    except record.RecordError:
        pytest.skip("there is no record yet: make codegen ARGS=--record")


def test_no_recorded_configuration_in_use_spills() -> None:
    entries = recorded()["data"]["entries"]
    used = [e for e in entries if e["in_use"]]
    assert {e["target"] for e in used} >= {"gfx942", "gfx950", "gfx1151", "gfx1201"}
    spilling = [e for e in used if e["vgpr_spills"] or e["scratch_bytes"]]
    assert [codegen.key_of(e) for e in spilling] == []


@needs_triton
@pytest.mark.skipif(not TREE.is_dir(), reason="needs build/vllm: make apply")
def test_the_usual_configurations_are_as_good_as_recorded() -> None:
    import triton

    kept = recorded()
    if kept["machine"]["triton"] != triton.__version__:
        pytest.skip(f"the record is of triton {kept['machine']['triton']}")
    words = [sys.executable, "-m", "evals.codegen", "--check", "--targets"]
    done = subprocess.run(
        [*words, "gfx942,gfx1151"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "as recorded or better" in done.stdout
