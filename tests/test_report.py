# SPDX-License-Identifier: Apache-2.0
"""Tables, plots and the page of synthetic records; the README against real ones."""

import re
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="the statistics need requirements/evals.txt")
pytest.importorskip("matplotlib", reason="plots need requirements/evals.txt")
pytest.importorskip("jinja2", reason="the page needs requirements/evals.txt")

from evals import (
    codegen_tables,
    plots,
    record,
    report,
    stats,
    views,
    views_ab,
    views_gdn,
)
from evals.blocks import by_arm, plan
from evals.record import Series
from series.errors import SeriesError

from .full_disk import full_disk

ROOT = Path(__file__).resolve().parent.parent
BASE = {"release": "0.32.0", "commit": "c" * 40, "tree": "d" * 40}
SERIES = Series(BASE, {"0004-port.patch": "a" * 40}, {}, {"vllm/x.py": "b" * 40})
CHANGED = Series(BASE, {"0004-port.patch": "e" * 40}, {}, {})


def kept(name: str, kind: str, data: dict, **machine: str) -> record.Record:
    return {
        "name": name,
        "kind": kind,
        "command": [f"evals.{kind}", "--arms", "a b"],
        "date": "2026-11-30T05:00:00+00:00",
        "base": BASE,
        "patches": {"0004-port.patch": "a" * 40},
        "files": {"vllm/x.py": "b" * 40},
        "machine": {"torch": "2.11.0", "triton": "3.6.0", **machine},
        "data": data,
    }


def timed(values: dict[str, float]) -> dict:
    runs = [(slot, values[slot.arm]) for slot in plan([*values], 3)]
    first = next(iter(values))
    compared = {
        name: stats.compare(first, name, runs).as_dict() for name in [*values][1:]
    }
    return {"samples": by_arm(runs), "compared": compared}


def gdn_record() -> record.Record:
    cases = []
    for state in ("fp32", "bf16"):
        for requests in (1, 8):
            times = timed({"unfused": 30.0 * requests, "port": 7.25 * requests})
            sweep = {"rule": [7.0, 7.0], "t8/w1": [6.5, 6.5], "t32": [9.0, 9.0]}
            cases.append(
                {
                    "shape": "16x32",
                    "state": state,
                    "requests": requests,
                    "tokens": 4,
                    "floor_us": 2.5 * requests,
                    "warm": timed({"unfused": 25.0 * requests, "port": 6.0 * requests}),
                    "cold": times,
                    "agreement": {"port": {"out": 2.1e-3, "state": 1e-7}},
                    "kernels": {"port": {"_update": 1.0, "_norm": 1.0}},
                    "sweep": {
                        "samples": sweep,
                        "chosen": 32,
                        "best": "t8/w1",
                        "rule_over_best": 7 / 6.5,
                    },
                }
            )
    data = {"options": {"bandwidth": 4.3e12}, "cases": cases}
    return kept(
        "gdn-h200", "gdn", data, device="NVIDIA H200", cuda="13.0", arch="sm_90"
    )


def codegen_record() -> record.Record:
    def entry(**more: object) -> dict:
        kinds = ("wide_loads", "narrow_loads")
        figures = ("vgprs", "sgprs", "vgpr_spills", "sgpr_spills", "lds_bytes")
        return {
            **dict.fromkeys((*figures, "occupancy", "loads", *kinds), 8),
            "target": "gfx1151",
            "in_use": True,
            **more,
        }

    plain = [
        entry(
            family="plain_dot",
            kernel="_plain",
            label=f"{count} a lane {dtype}",
            config={},
            in_use=False,
            unpacks=1,
            mixed_multiplies=0,
            vgprs=2 * count,
        )
        for count in (32, 64, 128)
        for dtype in ("bf16", "fp16")
    ]
    dot = {"K": 16384, "num_warps": 4}
    tile = {"BV": 32, "num_warps": 4}
    entries = [
        *plain,
        entry(family="tiny_dot", kernel="_tiny", label="K", config=dot, vgprs=98),
        entry(family="gdn", kernel="_update", label="state fp32", config=tile),
    ]
    return kept("codegen", "codegen", {"entries": entries})


def ab_record() -> record.Record:
    values = {"unfused": 10.1, "port": 9.5, "control": 10.1}
    slots = plan([*values], 3)
    runs = [
        {"arm": slot.arm, "values": {"ms": values[slot.arm]}, "calls": {"port": 3.0}}
        for slot in slots
    ]
    compared = {"ms": timed(values)["compared"]}
    return kept("decode-h200", "ab", {"runs": runs, "compared": compared})


def dot_record() -> record.Record:
    one = {"k": 2048, "dtype": "bf16", "form": "gate", "kernels": {}}
    times = timed({"blas": 4.98, "eager": 4.5, "triton": 1.3529})
    return kept("dot-h200", "dot", {"cases": [{**one, "warm": times}]})


RECORDS = [gdn_record(), codegen_record(), ab_record(), dot_record()]


def found(series: Series = SERIES) -> dict[str, views.Table]:
    return {t.name: t for one in RECORDS for t in views.tables(one, series)}


def test_every_kind_of_record_becomes_tables() -> None:
    tables = found()
    assert set(tables) >= {
        "gdn-h200",
        "gdn-h200:verdicts",
        "gdn-h200:sweep",
        "gdn-h200:launches",
        "gdn-h200:agreement",
        "codegen",
        "codegen:tiles",
        "codegen:elements",
        "decode-h200",
        "decode-h200:calls",
        "dot-h200",
    }
    assert "dot-h200:cold" not in tables
    for table in tables.values():
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows), table.name


def test_a_grid_is_told_in_sum() -> None:
    one = gdn_record()
    cases = one["data"]["cases"]
    slow = timed({"unfused": 10.0, "port": 11.0, "control": 11.0})
    more = [
        {**case, "tokens": tokens, "requests": requests, "cold": case["warm"]}
        for tokens in (2, 8)
        for requests in range(1, 12)
        for case in cases[::2]
    ]
    data = {**one["data"], "cases": [*more, {**more[0], "state": "fp32", "cold": slow}]}
    title, columns, rows = views_gdn.grid(data)
    assert "over that of unfused" in title
    assert len(rows) == 4
    worst = next(row for row in rows if row[1:3] == ["fp32", "2"])
    assert worst[3:] == ["24", "0.24", "0.24", "1.10", "16x32, 1"]
    assert views_gdn.times(data)[1][2] == "tokens"
    assert all(len(row) == len(columns) for row in rows)
    assert not views_gdn.grid(one["data"])[2]


def test_goals_are_held_against_the_medians() -> None:
    data = gdn_record()["data"]
    assert not views_gdn.goals(data)[2]
    fast = {"unfused": 40.0, "rowwise": 5.0, "merged": 10.0, "cuda_op": 6.0}
    first, large = data["cases"][0], data["cases"][1] | {"requests": 128}
    data["cases"] = [
        first | {"warm": timed(fast | {"merged": 9.9}), "cold": timed(fast)},
        # A floor of 5 / 1.11 us.
        large | {"warm": timed(fast), "cold": timed(fast), "floor_bytes": 19.37e6},
    ]
    _, columns, rows = views_gdn.goals(data)
    assert columns == ["requests", "at most", "16x32 fp32"]
    assert rows == [
        ["1", "0.50 of merged", "0.505 missed / 0.500"],
        ["128", "0.92 of cuda_op", "0.833 / 0.833"],
        ["128", "1.10 of the floor", "1.110 missed / 1.110 missed"],
    ]


def test_the_control_is_the_last_of_the_arms() -> None:
    data = gdn_record()["data"]
    arms = dict.fromkeys(("unfused", "port", "merged"), 8.0) | {"control": 7.0}
    data["cases"] = [data["cases"][0] | {"warm": timed(arms), "cold": timed(arms)}]
    assert [*data["cases"][0]["cold"]["samples"]][-1] != "control"
    _, columns, rows = views_gdn.times(data)
    assert columns[3:] == ["unfused", "port", "merged", "control", "floor"]
    assert rows[0][-2] == "7.0 / 7.0"


def test_the_control_is_the_last_of_a_comparison() -> None:
    values = {"unfused": 10.0, "control": 10.0, "port": 9.5}
    first = ab_record()
    data = first["data"]
    step = {"step of 1": {"launches": {"GDN": 3}, "device_us": {"GDN": 9.0}}}
    data["runs"] = [
        {"arm": arm, "values": {"ms": ms}, "calls": {"port": 1.0}, "notes": step}
        for arm, ms in values.items()
    ]
    data["compared"] = {"ms": timed(values)["compared"]}
    data["plan"] = {"arms": {name: [name] for name in values}}
    assert [*data["compared"]["ms"]] == ["control", "port"]
    later = first | {"date": first["date"] + "1"}
    tables = [
        (views_ab.ab_metrics(data), 1),
        (views_ab.ab_again(first, [first, later]), 1),
        (views_ab.ab_calls(data), 0),
        (views_ab.ab_steps(data), 1),
    ]
    for (title, _, rows), at in tables:
        assert [row[at] for row in rows][-2:] == ["port", "control"], title
    ((_, drawn),) = plots.plots("ab", data)
    assert drawn.index("ms: port") < drawn.index("ms: control")


def test_steps_stand_beside_what_the_kernels_foretell() -> None:
    values = {"unfused": 10.0, "port": 9.4, "control": 10.0}
    calls = {"gdn_unfused": 0.0, "gdn_port": 30.0}
    data = {
        "plan": {"arms": {name: ["arm.py", "--shape", "35b"] for name in values}},
        "runs": [
            {"arm": slot.arm, "values": {"step_ms_8": values[slot.arm]}, "calls": calls}
            for slot in plan([*values], 3)
        ],
        "compared": {"step_ms_8": timed(values)["compared"], "other": {}},
    }
    _, columns, rows = views_ab.ab_predicted(data, [ab_record(), gdn_record()])
    # 30 calls of 58 instead of 240 us.
    assert [row[:4] for row in rows] == [["8", "port", "-5.46", "0.454"]]
    assert rows[0][4].startswith("FASTER 0.940")
    assert len(columns) == len(rows[0])
    for changed in (["--shape", "27b"], ["--state", "bfloat16"]):
        arms = dict.fromkeys(values, changed)
        other = {**data, "plan": {"arms": arms}}
        assert not views_ab.ab_predicted(other, [gdn_record()])[2]
    assert not views_ab.ab_predicted(data, [])[2]
    # A short look at the same arms, and one without the base, foretell nothing.
    short, without = gdn_record(), gdn_record()
    for kept_too in (short, without):
        for case in kept_too["data"]["cases"]:
            cold = case["cold"] = {**case["cold"]}
            cold["samples"] = {n: [v[0] * 9] for n, v in cold["samples"].items()}
    for case in without["data"]["cases"]:
        del case["cold"]["samples"]["unfused"]
    records = [{**short, "name": "short"}, without, gdn_record()]
    _, columns, again = views_ab.ab_predicted(data, records)
    assert again == rows
    assert columns[3] == "foretold by gdn-h200"


def again(date: str, values: dict[str, float], *words: str) -> record.Record:
    one = ab_record()
    data = {
        "plan": {"arms": {name: ["arm.py", *words] for name in values}},
        "runs": [],
        "compared": {"ms": timed(values)["compared"]},
    }
    return {**one, "name": f"run-{date}", "date": date, "data": data}


def test_independent_runs_of_a_comparison_stand_side_by_side() -> None:
    first = again("2026-11-30", {"unfused": 10.0, "port": 9.5, "control": 10.0})
    later = again("2026-12-01", {"unfused": 10.0, "port": 9.5, "control": 10.1})
    other = again("2026-12-01", {"unfused": 10.0, "port": 9.0}, "--shape", "27b")
    records = [later, first, other, gdn_record(), ab_record()]
    _, columns, rows = views_ab.ab_again(first, records)
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("ms", "port", "meet"),
        ("ms", "control", "apart"),
    ]
    assert rows[0][2].startswith("FASTER 0.950")
    assert "1.010" in rows[1][3]
    assert all(len(row) == len(columns) for row in rows)
    assert not views_ab.ab_again(later, records)[2]
    assert not views_ab.ab_again(ab_record(), records)[2]


def test_only_peers_of_a_record_are_joined_with_it() -> None:
    def one(name: str, device: str, blob: str) -> record.Record:
        return kept(name, "gdn", {}, device=device) | {"files": {"vllm/x.py": blob}}

    mine = one("mine", "NVIDIA H200", "b")
    others = [
        mine,
        one("same", "NVIDIA H200", "b"),
        one("older-form", "NVIDIA H200", "c"),
        one("other-device", "gfx942", "b"),
    ]
    assert [p["name"] for p in views.peers(mine, others)] == ["mine", "same"]
    other_files = {**mine, "files": {"vllm/y.py": "c"}}
    assert len(views.peers(other_files, others)) == 3


def test_tables_hold_the_records_figures() -> None:
    tables = found()
    assert list(tables["gdn-h200"].rows[1]) == [
        *("16x32", "fp32", "8", "200.0 / 240.0", "48.0 / 58.0", "20.0")
    ]
    warm, cold = (row[:2] for row in tables["gdn-h200:verdicts"].rows[:2])
    assert warm == ["16x32 fp32, 1, warm", "FASTER 0.240 (0.240 to 0.240)"]
    assert cold == ["16x32 fp32, 1, cold", "FASTER 0.242 (0.242 to 0.242)"]
    assert tables["gdn-h200:sweep"].rows[0][-1] == "1.077"
    assert tables["dot-h200"].rows[0][:6] == [
        *("gate", "bf16", "2048", "4.98", "4.50", "1.35")
    ]
    shown = tables["decode-h200"].rows
    assert shown[1][:2] == ["ms", "port"]
    assert shown[1][-1].startswith("FASTER 0.941")
    assert shown[2][-1].startswith("SAME 1.000")


def test_markdown_is_a_table_with_its_source() -> None:
    text = found()["gdn-h200:agreement"].markdown()
    lines = text.splitlines()
    assert lines[0] == "| arm | state | output, 2-norm | state, largest |"
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    assert lines[2] == "| port | fp32 | 2.1e-03 | 1.0e-07 |"
    assert lines[-1].startswith("2026-11-30, NVIDIA H200, CUDA 13.0, torch 2.11.0")
    assert "patches 0004 on 0.32.0; gdn-h200.json" in lines[-1]
    assert "**Stale: 0004 has changed.**" in found(CHANGED)["codegen"].markdown()


README = """# Title

<!-- table:gdn-h200:agreement -->
old
<!-- /table -->

between

<!-- table:codegen -->
<!-- /table -->
end
"""


def test_the_readme_gets_its_tables_and_keeps_the_rest() -> None:
    once = report.readme_text(README, found())
    assert "old" not in once
    assert once.startswith("# Title\n\n<!-- table:gdn-h200:agreement -->\n| arm |")
    assert "\n\nbetween\n\n" in once
    assert once.endswith("<!-- /table -->\nend\n")
    assert report.readme_text(once, found()) == once
    assert report.readme_text(once, found(CHANGED)) != once


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<!-- table:none -->\n<!-- /table -->\n", "no record has the table none"),
        ("<!-- table:codegen -->\n", "no end"),
        (
            "<!-- table:codegen -->\n<!-- table:codegen -->\n<!-- /table -->\n",
            "no end",
        ),
    ],
)
def test_a_readme_that_asks_for_what_is_not_there(text: str, says: str) -> None:
    with pytest.raises(report.ReportError, match=says):
        report.readme_text(text, found())


def test_plots_show_every_line_and_are_reproducible() -> None:
    for one in RECORDS:
        made = plots.plots(one["kind"], one["data"])
        assert made == plots.plots(one["kind"], one["data"])
        for title, svg in made:
            assert title
            assert svg.startswith("<svg")
    (_, requests), (_, sweep) = plots.plots("gdn", RECORDS[0]["data"])
    for word in ("unfused", "port", "memory floor", "16x32, state bf16"):
        assert word in requests
    assert "t8/w1" in sweep
    ((_, registers),) = plots.plots("codegen", RECORDS[1]["data"])
    assert "published" in registers
    assert "the tiny dot of the series" in registers
    ((_, ratios),) = plots.plots("ab", RECORDS[2]["data"])
    assert "ms: port" in ratios


def test_the_page_has_all_records_and_says_what_is_stale() -> None:
    html = report.page(RECORDS, SERIES)
    assert html.count("<section") == len(RECORDS)
    assert html.count("<svg") == 4
    assert "58.0" in html
    assert "Stale" not in html
    assert "evals.gdn --arms &#39;a b&#39;" in html
    assert "Nothing here ran on AMD hardware" in html
    assert report.page(RECORDS, CHANGED).count("Stale: 0004 has changed") == 4
    assert "There is no record yet" in report.page([], SERIES)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A README that asks for tables of synthetic records."""
    monkeypatch.setattr(record, "current", lambda: SERIES)
    monkeypatch.setattr(record, "load_all", lambda: RECORDS)
    monkeypatch.setattr(report, "README", tmp_path / "README.md")
    report.README.write_text(README)
    return report.README


def test_a_readme_that_does_not_fit_on_the_disk_is_as_it_was(
    shown: Path, capsys: pytest.CaptureFixture
) -> None:
    with full_disk(len(README)), pytest.raises(OSError) as raised:
        report.main(["--readme"])
    assert raised.value.filename == str(shown)
    assert shown.read_text() == README
    assert [*shown.parent.iterdir()] == [shown]
    assert report.main(["--readme"]) == 0
    assert report.main(["--readme"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == ["README.md has new tables", "README.md is as it should be"]


def test_a_readmes_ends_of_lines_are_kept(shown: Path) -> None:
    assert report.main(["--readme"]) == 0
    text = shown.read_bytes()
    windows = text.replace(b"\n", b"\r\n")
    shown.write_bytes(windows.replace(b"| ---", b"| ----", 1))
    assert report.main(["--readme"]) == 0
    assert shown.read_bytes() == windows
    shown.write_bytes(text + b"\xff")
    with pytest.raises(report.ReportError, match="is not UTF-8"):
        report.main(["--readme"])


@pytest.mark.parametrize("data", [{}, {"cases": [{"k": 1}]}, {"cases": 3}])
@pytest.mark.parametrize("words", [["--readme"], []])
def test_a_record_of_other_content_is_named(
    words: list[str], data: dict, shown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "load_all", lambda: [kept("dot-x", "dot", data)])
    with pytest.raises(
        record.RecordError, match="does not hold what a record of dot has"
    ):
        report.main(words)


def test_a_page_that_cannot_be_written_names_its_place(shown: Path) -> None:
    out = shown.parent / "pages/index.html"
    words = ["--out", str(out)]
    with full_disk(100), pytest.raises(SeriesError, match=str(out)) as raised:
        report.main(words)
    assert raised.value.hint.endswith("Or name another place with --out.")
    assert [*out.parent.iterdir()] == []
    with pytest.raises(SeriesError, match="File exists"):
        report.main(["--out", str(shown / "index.html")])
    assert report.main(words) == 0
    assert out.read_text().rstrip().endswith("</html>")


def test_a_record_from_amd_hardware_is_told() -> None:
    one = kept("dot", "dot", {"cases": []}, arch="gfx1151", device="Radeon 8060S")
    assert report.amd_note([one]) == "Measured on AMD hardware: Radeon 8060S."


def test_the_readmes_tables_are_those_of_the_records() -> None:
    text = (ROOT / "README.md").read_text() if (ROOT / "README.md").exists() else ""
    if not re.search(r"<!-- table:", text):
        pytest.skip("README.md has no tables yet")
    series = record.current()
    records = record.load_all()
    real = {t.name: t for one in records for t in views.tables(one, series, records)}
    assert report.readme_text(text, real) == text, "python -m evals.report --readme"


def test_column_counts_of_the_cross_compilation() -> None:
    entries = RECORDS[1]["data"]["entries"]
    for make, columns in (
        (codegen_tables.summary, codegen_tables.SUMMARY_COLUMNS),
        (codegen_tables.tiles, codegen_tables.TILE_COLUMNS),
        (codegen_tables.elements, codegen_tables.ELEMENT_COLUMNS),
    ):
        assert all(len(line) == len(columns) for line in make(entries))
