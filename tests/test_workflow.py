# SPDX-License-Identifier: Apache-2.0
"""The workflow's own commands, run here: on a stand-in for upstream and for gh.

That the file is one GitHub would take is checked by actionlint where it is installed;
it has never run on GitHub itself.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import commit, git
from .upkeep import Lab, in_function, swap

ROOT = Path(__file__).parent.parent
WORKFLOW = ROOT / ".github/workflows/rebase.yml"
SCRIPT = ROOT / ".github/rebase-issue.sh"
GH = r"""#!/usr/bin/env python3
import json, os, pathlib, sys
path = pathlib.Path(os.environ["GH_STATE"])
state = json.loads(path.read_text()) if path.exists() else {"issues": [], "calls": []}
words = sys.argv[1:]
state["calls"].append(words)
value = lambda flag: words[words.index(flag) + 1] if flag in words else ""
issues = state["issues"]
if words[:2] == ["issue", "list"]:
    if issues:
        print(len(issues), issues[-1]["state"])
elif words[:2] == ["issue", "create"]:
    body = pathlib.Path(value("--body-file")).read_text()
    issues.append({"state": "OPEN", "body": body, "title": value("--title")})
elif words[:2] == ["issue", "edit"]:
    body = pathlib.Path(value("--body-file")).read_text()
    issues[int(words[2]) - 1]["body"] = body
elif words[:2] == ["issue", "close"]:
    issues[int(words[2]) - 1]["state"] = "CLOSED"
elif words[:2] == ["issue", "reopen"]:
    issues[int(words[2]) - 1]["state"] = "OPEN"
elif words[:2] != ["label", "create"]:
    sys.exit(f"unknown: {words}")
path.write_text(json.dumps(state))
"""


def steps() -> dict[str, str]:
    """The commands of each named step, as the file has them."""
    text = WORKFLOW.read_text()
    found = {}
    for block in re.split(r"\n      - ", text)[1:]:
        name = re.match(r"name: (.*)", block)
        one = re.search(r"\n        run: ([^|\n].*)", block)
        many = re.search(r"\n        run: \|\n((?:          .*\n|\n)+)", f"{block}\n")
        if name and (one or many):
            found[name[1]] = one[1] if one else re.sub("(?m)^ {10}", "", many[1])
    return found


@pytest.fixture
def work(lab: Lab, tmp_path: Path) -> Path:
    """A checkout of this repository as the runner has it, with the lab's series."""
    work = tmp_path / "work"
    (work / "requirements").mkdir(parents=True)
    shutil.copy(ROOT / "apply.py", work)
    shutil.copytree(ROOT / "series", work / "series")
    shutil.copytree(ROOT / ".github", work / ".github")
    shutil.copytree(lab.patches, work / "patches")
    (work / "build").mkdir()
    # The environment is this interpreter's, not one to be installed.
    (work / "requirements/environment.py").write_text("")
    (work / ".venv/bin").mkdir(parents=True)
    python = work / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (work / "bin").mkdir()
    (work / "bin/gh").write_text(GH)
    (work / "bin/gh").chmod(0o755)
    return work


def night(work: Path, lab: Lab) -> tuple[int, dict]:
    """All steps in order; returns the last exit code and what gh knows."""
    env = {
        **os.environ,
        "UPSTREAM": lab.upstream.as_uri(),
        "GITHUB_OUTPUT": str(work / "output"),
        "GITHUB_STEP_SUMMARY": str(work / "summary"),
        "GH_STATE": str(work / "gh.json"),
        "RUN": "https://example.com/run/1",
        "PATH": f"{work / 'bin'}:{os.environ['PATH']}",
    }
    (work / "output").write_text("")
    (work / "build/summary.md").unlink(missing_ok=True)
    code = 0
    for text in steps().values():
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
            cwd=work,
            env=env,
            capture_output=True,
            text=True,
        )
        code = done.returncode
        print(done.stdout, done.stderr)
        said = dict(
            line.split("=", 1) for line in (work / "output").read_text().splitlines()
        )
        env["CODE"] = said.get("code", "")
        if code:
            break
    state = work / "gh.json"
    known = json.loads(state.read_text()) if state.exists() else {"issues": []}
    return code, known


def upstream_moves(lab: Lab, edit, message: str) -> None:
    """A commit on upstream's main."""
    git(lab.upstream, "switch", "-q", "main")
    edit(lab.upstream)
    commit(lab.upstream, f"{message}\n")


def test_all_steps_are_found() -> None:
    assert list(steps()) == [
        "Fetch upstream",
        "Install what the series needs",
        "Try the series on main",
        "Keep the one issue",
        "Be red when it does not apply",
    ]


def test_nights_in_a_row(lab: Lab, work: Path) -> None:
    """Green, red, red, green, red: one issue in all, closed and reopened."""
    assert night(work, lab) == (0, {"issues": [], "calls": CALLS_WHEN_QUIET})
    clone = work / "build/upstream.git"
    assert git(clone, "config", "remote.origin.promisor") == "true"
    upstream_moves(lab, in_function("second", "x * w", "w * x"), "Break it")
    code, known = night(work, lab)
    assert code == 1
    [issue] = known["issues"]
    assert issue["state"] == "OPEN"
    assert "0001 conflict: vllm/ops.py" in issue["body"]
    assert "https://example.com/run/1" in issue["body"]
    assert "| conflict |" in (work / "summary").read_text()
    upstream_moves(lab, swap("vllm/core.py", "value_20 = 20", "value_20 = 2"), "More")
    code, known = night(work, lab)
    assert code == 1
    [issue] = known["issues"]
    assert "0002 conflict: vllm/core.py" in issue["body"]
    git(lab.upstream, "switch", "-q", "-C", "main", "v0.32.0")
    code, known = night(work, lab)
    assert code == 0
    assert [issue["state"] for issue in known["issues"]] == ["CLOSED"]
    upstream_moves(lab, in_function("second", "x * w", "w * x"), "Break it again")
    code, known = night(work, lab)
    assert code == 1
    assert [issue["state"] for issue in known["issues"]] == ["OPEN"]


CALLS_WHEN_QUIET = [
    [
        *("issue", "list", "--label", "rebase-check", "--state", "all"),
        *("--limit", "1", "--json", "number,state"),
        *("--jq", '.[0] | select(.) | "\\(.number) \\(.state)"'),
    ]
]


def test_a_failure_of_the_run_leaves_the_issue_alone(lab: Lab, work: Path) -> None:
    upstream_moves(lab, in_function("second", "x * w", "w * x"), "Break it")
    _, before = night(work, lab)
    (work / "patches/series.toml").write_text("broken")
    code, after = night(work, lab)
    assert code != 0
    assert after["issues"] == before["issues"]


def test_a_cache_that_is_no_repository_is_made_anew(lab: Lab, work: Path) -> None:
    clone = work / "build/upstream.git"
    clone.mkdir()
    (clone / "rubbish").write_text("x")
    assert night(work, lab)[0] == 0
    assert not (clone / "rubbish").exists()


def test_another_code_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "gh").write_text("#!/bin/sh\n")
    (tmp_path / "gh").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [str(SCRIPT), "1", "none", "run"]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no answer" in done.stderr


@pytest.mark.skipif(not shutil.which("actionlint"), reason="actionlint is not here")
def test_actionlint_finds_nothing() -> None:
    words = ["actionlint", str(WORKFLOW)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
