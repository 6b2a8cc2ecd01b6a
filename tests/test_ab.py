# SPDX-License-Identifier: Apache-2.0
"""The A/B command on synthetic arms: real processes, no GPU."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="the statistics need requirements/evals.txt")
pytest.importorskip("rich")

from evals import ab, arms, cli, cooling, sensors
from evals.blocks import plan
from evals.journal import Journal, JournalError
from evals.stats import Verdict, compare
from series.errors import Exit, SeriesError, UsageError
from series.locks import locked

ROOT = Path(__file__).resolve().parent.parent
ARM = """
import json, os, random, sys
base, second, drift, calls = json.loads(sys.argv[1])
run = int(os.environ["AB_RUN"])
noise = random.Random(run).gauss(1, 0.002)
late = second if run % 3 else 1  # of three arms, the first has the advantage
value = base * late * (1 + drift * run) * noise
print("a line of a library")
print(json.dumps({"values": {"ms": value}, "calls": calls}))
print("[1, 2]")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "an arm.py"
    path.write_text(ARM)
    return path


def command(
    script: Path, base: float, second: float = 1, drift: float = 0, **calls: int
) -> str:
    words = json.dumps([base, second, drift, calls])
    return f"'{sys.executable}' '{script}' '{words}'"


def run(out: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "evals.ab", "--out", str(out), *words],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


def report(out: Path) -> dict:
    return json.loads((out / "ab.json").read_text())


def test_verdicts_through_the_command(script: Path, tmp_path: Path) -> None:
    """A control that is the same, 2 % that is slower, through drift and order."""
    out = tmp_path / "out"
    slow = command(script, 10.2, 1.05, 0.01, port=30)
    done = run(
        out,
        *("--arm", f"off={command(script, 10.0, 1.05, 0.01, port=0)}"),
        *("--arm", f"on={slow}"),
        *("--ran", "on:port", "--idle", "off:port", "--blocks", "3"),
    )
    assert done.returncode == 0, done.stderr
    found = report(out)
    verdicts = {k: v["verdict"] for k, v in found["compared"]["ms"].items()}
    assert verdicts == {"on": "SLOWER", "control": "SAME"}
    assert "SLOWER 1.0" in done.stdout
    assert len(found["runs"]) == 18
    assert {run["arm"] for run in found["runs"]} == {"off", "on", "control"}
    assert found["runs"][1]["calls"] == {"port": 30}
    assert "no temperature sensor" in done.stderr or found["runs"][0]["before"]
    assert "left" in done.stderr


def test_too_few_runs_are_refused(script: Path, tmp_path: Path) -> None:
    done = run(
        tmp_path / "out",
        *("--arm", f"off={command(script, 10.0)}", "--blocks", "1"),
        *("--arm", f"on={command(script, 20.0)}", "--no-control"),
    )
    assert done.returncode == Exit.FAILURE
    assert "2 runs of each arm in whole blocks, 4 are needed" in done.stderr
    assert report(tmp_path / "out")["void"]


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        (["--ran", "on:port"], "on never called port (calls: port 0)"),
        (["--idle", "off:port"], "off called port 7 times, it claims none"),
        (["--idle", "off:op"], "off does not count calls of op"),
    ],
)
def test_an_arm_that_did_not_run_its_claim_voids(
    claim: list[str], says: str, script: Path, tmp_path: Path
) -> None:
    done = run(
        tmp_path / "out",
        *("--arm", f"off={command(script, 10.0, port=7)}"),
        *("--arm", f"on={command(script, 10.0, port=0)}", *claim),
    )
    assert done.returncode == Exit.FAILURE
    assert says in done.stderr
    assert "void" in done.stderr
    assert not (tmp_path / "out/ab.json").exists()


SLOW_ARM = """
import json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / os.environ["AB_RUN"]).write_text(str(os.getpid()))
while (folder / "hold").exists() and os.environ["AB_RUN"] == "3":
    time.sleep(0.05)
print(json.dumps({"value": 1.0 + int(os.environ["AB_RUN"]) / 1e4}))
"""


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_is_done_and_resume_goes_on(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_ARM)
    seen = tmp_path / "seen"
    seen.mkdir()
    (seen / "hold").touch()
    arm = f"'{sys.executable}' '{tmp_path / 'slow.py'}' '{seen}'"
    out = tmp_path / "out"
    words = ["--arm", f"a={arm}", "--arm", f"b={arm}", "--blocks", "2", "--no-control"]
    call = [sys.executable, "-m", "evals.ab", "--out", str(out), *words]
    child = subprocess.Popen(call, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (seen / "3").exists() or not (seen / "3").read_text():
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.05)
    child.send_signal(number)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == Exit.INTERRUPT, errors
    assert "3 of 8 runs are kept" in errors
    with pytest.raises(ProcessLookupError):
        os.kill(int((seen / "3").read_text()), 0)
    (seen / "hold").unlink()

    again = run(out, *words)
    assert again.returncode == Exit.FAILURE
    assert "--resume" in again.stderr
    other = run(out, *words[:-2], "5", "--no-control", "--resume")
    assert "another blocks" in other.stderr
    moved = [word.replace(str(seen), str(tmp_path / "other")) for word in words]
    assert "another arms" in run(out, *moved, "--resume").stderr

    for name in "012":
        (seen / name).unlink()
    with (out / "runs.jsonl").open("a") as file:
        file.write('{"arm": "cut off in the mid')
    resumed = run(out, *words, "--resume")
    assert resumed.returncode == Exit.DONE, resumed.stderr
    assert {path.name for path in seen.iterdir()} == {"3", "4", "5", "6", "7"}
    found = report(out)
    assert [run["arm"] for run in found["runs"]] == [
        slot.arm for slot in plan(["a", "b"], 2)
    ]
    values = [run["values"]["value"] for run in found["runs"]]
    assert values == [1.0 + at / 1e4 for at in range(8)]

    for path in seen.iterdir():
        path.unlink()
    assert run(out, *words, "--resume").returncode == Exit.DONE
    assert not list(seen.iterdir())
    assert report(out)["compared"] == found["compared"]


def test_a_failing_arm_is_named_with_its_last_words(tmp_path: Path) -> None:
    bad = f"'{sys.executable}' -c 'import sys; sys.exit(\"no memory left\")'"
    done = run(tmp_path / "out", "--arm", f"a={bad}", "--arm", f"b={bad}")
    assert done.returncode == Exit.FAILURE
    assert "a ended with 1" in done.stderr
    assert "no memory left" in done.stderr
    assert "0 of 24 runs are kept" in done.stderr


def test_a_result_file_counts_before_the_output(tmp_path: Path) -> None:
    words = (
        "import json, os, pathlib\n"
        "pathlib.Path(os.environ['AB_RESULT']).write_text("
        "json.dumps({'values': {'ms': 2}, 'machine': {'device': 'x'}}, indent=1))\n"
        "print(json.dumps({'value': 1}))"
    )
    outcome = arms.run(arms.Arm("a", [sys.executable, "-c", words]), 0)
    assert outcome.values == {"ms": 2.0}
    assert outcome.facts == {"machine": {"device": "x"}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("done\n[1]\n3", "no JSON object"),
        ('{"values": {"ms": 0}}', "above zero"),
        ('{"values": {"ms": true}}', "above zero"),
        ('{"values": {}}', "above zero"),
        ('{"values": 3}', "above zero"),
        ("{}", "above zero"),
        ('{"value": NaN}', "above zero"),
        ('{"value": Infinity}', "above zero"),
        ('{"value": 1' + 400 * "0" + "}", "above zero"),
        ('{"value": 1, "calls": [1]}', "calls"),
        ('{"value": 1, "calls": {"k": "x"}}', "calls"),
        ('{"value": 1, "notes": "abc"}', "notes"),
        ('{"value": 1, "machine": "x"}', "machine"),
        ('{"value": 1, "sources": [1]}', "sources"),
        ('{"value": 1, "sources": {"f": 1}}', "sources"),
    ],
)
def test_what_no_arm_may_say(text: str, says: str) -> None:
    with pytest.raises(arms.ArmError) as caught:
        arms.parse(text, "a")
    assert says in caught.value.what


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("sys.stdout.buffer.write(bytes([255]))", "printed no JSON object"),
        ("open(os.environ['AB_RESULT'], 'w').write('{')", "wrote no JSON"),
        ("open(os.environ['AB_RESULT'], 'wb').write(bytes([255]))", "wrote no JSON"),
    ],
)
def test_what_cannot_be_read_of_an_arm_is_told(words: str, says: str) -> None:
    call = [sys.executable, "-c", f"import os, sys; {words}"]
    with pytest.raises(arms.ArmError, match=says):
        arms.run(arms.Arm("a", call), 0)


def test_an_arm_that_hangs_is_stopped(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(arms.ArmError, match="longer than"):
        arms.run(arms.Arm("a", words), 0, timeout_s=0.5)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--arm", "a"],
        ["--arm", "a=x", "--arm", "a=y"],
        ["--arm", "control=x", "--arm", "b=y"],
        ["--arm", "a=x", "--arm", "b=y", "--ran", "c:port"],
        ["--arm", "a=x", "--no-control"],
        ["--arm", "a=sh -c 'x", "--arm", "b=y"],
        ["--arm", "a= ", "--arm", "b=y"],
        *(
            ["--arm", "a=x", "--arm", "b=y", option, value]
            for option, values in {
                "--blocks": ("0", "-3"),
                "--seed": ("-1",),
                "--margin": ("nan", "0", "5"),
                "--pause": ("-1", "inf"),
                "--patience": ("nan",),
                "--timeout": ("0", "nan"),
                "--cool": ("nan",),
            }.items()
            for value in values
        ),
    ],
)
def test_words_that_make_no_comparison(words: list[str]) -> None:
    with pytest.raises(UsageError):
        ab.arms_of(ab.parse(words))


def comparison(metric: str, arm: str, ratio: float) -> dict:
    series = [(slot, ratio if slot.arm == arm else 1.0) for slot in plan(["a", arm], 3)]
    return {metric: {arm: compare("a", arm, series)}}


def test_a_control_that_differs_and_a_metric_that_must_not_change() -> None:
    assert not ab.judge(comparison("ms", "b", 1.5), [])
    assert not ab.judge(comparison("ms", ab.CONTROL, 1.0), [])
    (problem,) = ab.judge(comparison("ms", ab.CONTROL, 1.5), [])
    assert "a differs from itself" in problem
    (problem,) = ab.judge(comparison("prefill", "b", 0.83), ["prefill"])
    assert "prefill must not change" in problem


def test_more_can_be_better() -> None:
    args = ab.parse(["--higher", "tokens"])
    slots = plan(["a", "b"], 3)
    runs = [
        {"arm": s.arm, "values": {"tokens": 44.7 if s.arm == "b" else 43.3}}
        for s in slots
    ]
    found = ab.comparisons(runs, slots, args)["tokens"]["b"]
    assert found.verdict is Verdict.FASTER


def test_the_control_is_told_behind_the_arms() -> None:
    slots = plan(["a", "b", "c", ab.CONTROL], 3)
    order = list(dict.fromkeys(slot.arm for slot in slots))
    assert order[-1] != ab.CONTROL
    runs = [{"arm": slot.arm, "values": {"ms": 1.0}} for slot in slots]
    found = ab.comparisons(runs, slots, ab.parse([]))["ms"]
    assert [*found] == [name for name in order[1:] if name != ab.CONTROL] + [ab.CONTROL]


def test_runs_that_measured_something_else_are_refused() -> None:
    runs = [{"arm": "a", "values": {"ms": 1.0}}, {"arm": "b", "values": {"s": 1.0}}]
    with pytest.raises(arms.ArmError, match="measured s, the first ms"):
        ab.comparisons(runs, plan(["a", "b"], 1), ab.parse([]))


@pytest.mark.parametrize("option", ["--higher", "--unchanged"])
def test_an_option_for_a_metric_that_none_has_is_refused(
    option: str, script: Path, tmp_path: Path
) -> None:
    """A misspelt negative control would never fail."""
    arm = command(script, 10.0)
    words = ("--arm", f"a={arm}", "--arm", f"b={arm}", option, "mss")
    done = run(tmp_path, *words)
    assert done.returncode == Exit.FAILURE
    assert f"{option} mss: the runs measured ms" in done.stderr
    assert "in another --out" in done.stderr
    assert "0 of 24 runs are kept" in done.stderr


def test_cooling_waits_and_gives_up() -> None:
    heats = iter([80.0, 60.0, 45.0])
    waits: list[float] = []
    hot = sensors.Sensor(lambda: sensors.Reading(next(heats)), "test")
    reading = cooling.cool_down(hot, 45.0, 60.0, waits.append)
    assert reading is not None
    assert reading["temperature_c"] == 45.0
    assert len(waits) == 2
    always = sensors.Sensor(lambda: sensors.Reading(80.0), "test")
    with pytest.raises(cooling.HotError, match="80"):
        cooling.cool_down(always, 45.0, 6.0, waits.append)
    assert cooling.cool_down(sensors.Sensor(None, "none"), 45.0, 6.0) is None


@pytest.fixture
def ended(script: Path, tmp_path: Path) -> tuple[Path, list[str]]:
    """The folder of a comparison that is done, and the words that made it."""
    script.write_text('print(\'{"value": 1.5, "calls": {"k": 0}}\')')
    arm = f"'{sys.executable}' '{script}'"
    words = ["--arm", f"a={arm}", "--arm", f"b={arm}", "--blocks", "2", "--no-control"]
    out = tmp_path / "out"
    assert run(out, *words).returncode == Exit.DONE
    return out, words


Lines = list[str]


def changed(lines: Lines, at: int, **values: object) -> Lines:
    line = json.dumps({**json.loads(lines[at]), **values})
    return [*lines[:at], line, *lines[at + 1 :]]


DAMAGED = {
    "a line is gone": lambda lines: [*lines[:2], *lines[3:]],
    "a line is twice": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "two have changed places": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "one too many": lambda lines: [*lines, lines[-1]],
    "no JSON": lambda lines: [*lines[:2], "{", *lines[3:]],
    "no object": lambda lines: [*lines[:2], "[1]", *lines[3:]],
    "the first is no object": lambda lines: ["5", *lines[1:]],
    "no values": lambda lines: changed(lines, 2, values={}),
    "null": lambda lines: changed(lines, 2, values={"value": None}),
    "infinite": lambda lines: changed(lines, 2, values={"value": float("inf")}),
    "a metric of that name": lambda lines: changed(lines, 2, values={"seconds": None}),
    "no seconds": lambda lines: changed(lines, 2, seconds="x"),
    "no facts": lambda lines: changed(lines, 2, facts=[]),
    "a count": lambda lines: changed(lines, 8, witness="a"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_no_verdict_comes_of_a_damaged_journal(
    kind: str, ended: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    out, words = ended
    path = out / "runs.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(DAMAGED[kind](lines)) + "\n")
    before = path.read_bytes()
    (out / "ab.json").unlink()
    code = cli.guarded(ab.main, ["--out", str(out), *words, "--resume"])
    assert code == Exit.FAILURE
    assert "--out" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert not (out / "ab.json").exists()


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--margin", "0.05"], "another margin"),
        (["--higher", "value"], "another higher"),
        (["--unchanged", "value"], "another unchanged"),
        (["--idle", "b:k"], "another claims"),
    ],
)
def test_what_decides_is_not_chosen_after_the_runs(
    more: list[str], named: str, ended: tuple[Path, list[str]]
) -> None:
    out, words = ended
    with pytest.raises(JournalError, match=named):
        ab.main(["--out", str(out), *words, *more, "--resume"])


def test_a_comparison_is_one_runs_and_is_not_written_over(
    ended: tuple[Path, list[str]],
) -> None:
    out, words = ended
    call = ["--out", str(out), *words]
    with locked(out), pytest.raises(JournalError, match="in use by another run"):
        ab.main([*call, "--resume"])
    (out / "runs.jsonl").unlink()
    before = (out / "ab.json").read_bytes()
    with pytest.raises(JournalError, match="already"):
        ab.main(call)
    assert (out / "ab.json").read_bytes() == before
    assert not (out / "runs.jsonl").exists()


def test_a_journal_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with pytest.raises(JournalError, match="nothing to resume"):
        Journal.resume(path, {})
    path.write_text('{"other": 1}\n')
    for start in (Journal.start, Journal.resume):
        with pytest.raises(SeriesError):
            start(path, {"blocks": 1})
    assert path.read_text() == '{"other": 1}\n'
