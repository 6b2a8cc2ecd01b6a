# SPDX-License-Identifier: Apache-2.0
"""A change set for upstream: refused with evidence, or made whole; never pushed."""

import errno
import json
import os
from pathlib import Path

import pytest

from series.errors import ConflictError, DiskError, SeriesError
from series.expected import record_expected
from series.git import Repository
from series.linters import Lint, summary
from series.mail import read_mail
from series.refusal import RefusedError
from series.scratch import scratch_over
from series.submit import submit
from series.submit_text import TemplateError

from .conftest import commit, git, seen_state, subjects
from .full_disk import failing_git
from .test_onto import CLASH, TITLES
from .upkeep import SERIES, TEMPLATE, Lab, add, swap

ME = "Jo Doe <jo@example.com>"


@pytest.fixture(autouse=True)
def identity(quiet_git: Path) -> None:
    """The user's own git settings, with a name."""
    text = "[user]\n\tname = Jo Doe\n\temail = jo@example.com\n"
    (quiet_git / ".gitconfig").write_text(text)


def make(lab: Lab, said, name: str = "dot", **options):
    results = lab.project / "evals/results"
    return submit(lab.toml, lab.build, name, results, said, lint=False, **options)


def edit_toml(lab: Lab, old: str, new: str) -> None:
    """Change series.toml once."""
    text = lab.toml.read_text()
    assert old in text
    lab.toml.write_text(text.replace(old, new, 1))


def test_a_branch_with_the_change_set_alone(lab: Lab, said) -> None:
    clone = lab.clone()
    before = seen_state(clone)
    made = make(lab, said, vllm=clone)
    assert made.branch == "pr-dot"
    assert subjects(clone, "v0.32.0..pr-dot") == [TITLES[0], TITLES[2]]
    log = git(clone, "log", "--format=%an <%ae>|%cn <%ce>|%B", "v0.32.0..pr-dot")
    assert log.count(f"{ME}|{ME}|") == 2
    assert log.count("Co-authored-by: Claude <noreply@anthropic.com>\n") == 2
    assert log.count(f"Signed-off-by: {ME}") == 2
    # The other change set's lines are not in it.
    assert "'two'" not in git(clone, "show", "pr-dot:vllm/core.py")
    after = seen_state(clone)
    after["refs"] = [ref for ref in after["refs"] if "refs/heads/pr-dot" not in ref]
    after["files"] = {k: v for k, v in after["files"].items() if "pr-dot" not in k}
    assert after == before


def test_files_to_send_and_words_to_run(lab: Lab, said) -> None:
    clone = lab.clone()
    git(clone, "remote", "add", "fork", "https://example.com/jodoe/vllm.git")
    made = make(lab, said, vllm=clone)
    names = sorted(path.name for path in made.folder.iterdir())
    assert names[0] == "0000-cover-letter.patch"
    assert names[-1] == "body.md"
    assert len(names) == 4
    cover = (made.folder / names[0]).read_text()
    assert "SUBJECT HERE" not in cover
    assert "BLURB HERE" not in cover
    assert "[ROCm][Perf] Add a dot" in cover
    patch = (made.folder / names[1]).read_text()
    assert f"Signed-off-by: {ME}" in patch
    push, create = made.send
    assert push == f"git -C {clone} push fork pr-dot"
    assert "--repo vllm-project/vllm --base main --head jodoe:pr-dot" in create
    assert "--title '[ROCm][Perf] Add a dot'" in create
    assert str(made.folder / "body.md") in create
    assert any("gh pr list" in line for line in made.check)
    assert "open https://example.com/7  # recorded as merged" in made.check


def test_the_patches_of_a_submission_apply(lab: Lab, said) -> None:
    clone = lab.clone()
    made = make(lab, said, vllm=clone)
    git(clone, "switch", "-q", "-c", "tried", "v0.32.0")
    files = sorted(made.folder.glob("000[1-9]*.patch"))
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    git(clone, *who, "am", "-q", "--keep-non-patch", *map(str, files))
    assert git(clone, "rev-parse", "HEAD^{tree}") == git(
        clone, "rev-parse", "pr-dot^{tree}"
    )


def test_the_body_claims_what_is_recorded_only(lab: Lab, said) -> None:
    repo = lab.own()
    with scratch_over(repo) as scratch:
        mail = read_mail(scratch, lab.patches / "0001-add-the-dot.patch")
        out = scratch.git("patch-id", "--stable", stdin=mail.diff).decode()
    results = lab.project / "evals/results"
    results.mkdir(parents=True)
    record = {
        "name": "dot-h200",
        "kind": "dot",
        "command": ["python", "evals/bench.py", "dot"],
        "date": "2026-11-30T01:02:03",
        "patches": {"0001-add-the-dot.patch": out.split()[0]},
        "machine": {"device": "NVIDIA H200"},
        "data": {"summary": ["K = 2048: 1.28 us"], "samples": [1, 2, 3]},
    }
    (results / "dot-h200.json").write_text(json.dumps(record))
    old = {**record, "patches": {"0001-add-the-dot.patch": "0" * 40}}
    (results / "dot-old.json").write_text(json.dumps(old))
    other = {**record, "patches": {"0009-other.patch": "1" * 40}}
    (results / "other.json").write_text(json.dumps(other))
    (results / "damaged.json").write_text("{")
    made = make(lab, said)
    body = (made.folder / "body.md").read_text()
    assert "- `dot-h200` (dot), NVIDIA H200, 2026-11-30:" in body
    assert "  `python evals/bench.py dot`" in body
    assert "  K = 2048: 1.28 us" in body
    assert "`dot-old` is of an earlier form of the patches: not quoted" in body
    assert "other" not in body.replace("another", "")
    assert "- end-to-end serving: not measured" in body
    assert "kernel benchmark" not in made.missing
    assert set(made.missing) == {
        "AMD code generation",
        "end-to-end serving",
        "model evaluation",
    }


def test_the_body_is_upstreams_template_filled(lab: Lab, said) -> None:
    lab.own()
    body = (make(lab, said).folder / "body.md").read_text()
    places = [body.index(f"## {name}\n") for name in ("Overview", "Claims")]
    assert places == sorted(places)
    assert "<!--" not in body
    assert "- [x] AI assistance was used during the creation of this PR." in body
    assert "AI assistance was used: Claude wrote" in body
    assert "Why it is so." in body
    assert "Co-authored-by" not in body
    assert "https://example.com/7 (merged): disjoint" in body
    assert "`pytest tests/test_ops.py`" in body


def test_backslashes_and_groups_stay_in_a_body(lab: Lab, said) -> None:
    lab.own()
    edit_toml(lab, 'title = "Add a dot"', "title = 'Add \\1 \\g<0> a dot'")
    body = (make(lab, said).folder / "body.md").read_text()
    assert "Add \\1 \\g<0> a dot." in body


def test_a_template_of_another_shape(lab: Lab, said) -> None:
    template = TEMPLATE.replace("## Validation", "## Proof")
    lab.release("0.33.0", add(".github/PULL_REQUEST_TEMPLATE.md", template))
    lab.own()
    with pytest.raises(TemplateError, match="no section Validation"):
        make(lab, said, onto="0.33.0")
    assert not (lab.build / "pr/dot").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            '"Add a dot"\nupstream = { state = "not submitted" }',
            '"Add a dot"\nupstream = { state = "open", url = "https://example.com/9" }',
            "an open public change holds it: https://example.com/9",
        ),
        (
            '"Add a dot"\nupstream = { state = "not submitted" }',
            '"Add a dot"\nupstream = { state = "merged", since = 2026-11-02 }',
            "recorded as merged upstream since 2026-11-02",
        ),
        (
            'how = "disjoint", state = "merged" }',
            'how = "the same", state = "open", covers = true }',
            r"https://example.com/7 \(open\) covers it: the same",
        ),
    ],
)
def test_merged_or_covered_is_refused(lab: Lab, said, old, new, words) -> None:
    repo = lab.own()
    edit_toml(lab, old, new)
    with pytest.raises(RefusedError, match=words) as caught:
        make(lab, said)
    assert "--anyway" in caught.value.hint
    assert repo.resolve("refs/heads/pr-dot") is None
    made = make(lab, said, anyway=True)
    [told] = made.refusals
    assert (
        f"In the way, and sent all the same: {told}"
        in (made.folder / "body.md").read_text()
    )


def test_what_newer_upstream_has_is_refused(lab: Lab, said) -> None:
    lab.release("0.33.0", SERIES[1][1])
    lab.own()
    with pytest.raises(RefusedError, match="0002 is merged upstream: content"):
        make(lab, said, "core", onto="0.33.0")
    # On the pin it is not there, but the recorded outcomes know of it.
    from series.check import check

    found = check(lab.manifest, lab.build, said, compare=False)
    steps = {column.onto: list(column.steps) for column in found.columns}
    record_expected(lab.manifest, steps)
    with pytest.raises(RefusedError, match=r"merged \(content\) in v0\.33\.0"):
        make(lab, said, "core")
    with pytest.raises(RefusedError, match="Nothing of core is left"):
        make(lab, said, "core", onto="0.33.0", anyway=True)


def test_what_rests_on_a_merged_change_goes_onto_upstreams_form(lab: Lab, said) -> None:
    """0001 is upstream in another form; 0003 changes what upstream now has."""
    text = "upstream_dot = 1\n\n\ndef dot(x):\n    return x.sum()\n"
    other = add("vllm/dot.py", text)
    lab.release("0.33.0", other)
    lab.own()
    edit_toml(lab, 'series = "dot"\nupstream = { state = "not submitted" }\ndrop', DROP)
    lab.toml.write_text(
        lab.toml.read_text().replace("[[patch]]", BASE_SET + "[[patch]]", 1)
    )
    made = make(lab, said, onto="0.33.0")
    assert [step.state for step in made.steps] == ["moved"]
    where = lab.build / "vllm"
    text = git(where, "show", "pr-dot:vllm/dot.py")
    assert "return round(x.sum())" in text
    assert "upstream_dot = 1" in text
    assert subjects(where, "v0.33.0..pr-dot") == [TITLES[2]]


DROP = 'series = "base"\nupstream = { state = "merged" }\ndrop'
BASE_SET = """[[change_set]]
name = "base"
title = "The base"
upstream = { state = "merged" }

"""


def test_a_patch_that_does_not_stand_alone(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    lab.own()
    with pytest.raises(ConflictError, match=r"0001-add-the-dot\.patch does not land"):
        make(lab, said, onto="0.33.0")


def test_nobody_to_sign(lab: Lab, said, quiet_git: Path) -> None:
    repo = lab.own()
    (quiet_git / ".gitconfig").write_text("[user]\n\tname = Jo Doe\n")
    with pytest.raises(RefusedError, match="signed off by a person") as caught:
        make(lab, said)
    assert "user.email" in caught.value.hint
    assert repo.resolve("refs/heads/pr-dot") is None


def test_an_author_of_their_own_stays(lab: Lab, said) -> None:
    for path in lab.patches.glob("*.patch"):
        text = path.read_text()
        who = "From: vLLM ROCm series <series@example.invalid>"
        path.write_text(text.replace(who, "From: Ann Other <ann@example.com>"))
    lab.own()
    make(lab, said)
    log = git(lab.build / "vllm", "log", "--format=%ae|%ce", "v0.32.0..pr-dot")
    assert (
        log == "ann@example.com|jo@example.com\n" * 1 + "ann@example.com|jo@example.com"
    )


def test_a_branch_with_own_commits_stays(lab: Lab, said) -> None:
    clone = lab.clone()
    make(lab, said, vllm=clone)
    first = git(clone, "rev-parse", "pr-dot")
    assert make(lab, said, vllm=clone).tip == first
    lab.amend(3, "round(x.sum())", "float(x.sum())")
    assert make(lab, said, vllm=clone).tip != first
    git(clone, "switch", "-q", "pr-dot")
    with pytest.raises(SeriesError, match="checked out"):
        lab_amended_again(lab, said, clone)
    swap("vllm/core.py", "value_1 = 1\n", "value_1 = 11\n")(clone)
    mine = commit(clone, "Mine\n")
    git(clone, "switch", "-q", "--detach")
    with pytest.raises(SeriesError, match="did not make"):
        make(lab, said, vllm=clone)
    assert git(clone, "rev-parse", "pr-dot") == mine


def lab_amended_again(lab: Lab, said, clone: Path) -> None:
    """Another form of the patches, for a branch that is checked out."""
    lab.amend(3, "round(x.sum())", "int(x.sum())")
    make(lab, said, vllm=clone)


def test_an_unknown_change_set(lab: Lab, said) -> None:
    lab.own()
    with pytest.raises(RefusedError, match="No change set is named nothing") as caught:
        make(lab, said, "nothing")
    assert "dot, core" in caught.value.hint


def test_linters_are_summed_up() -> None:
    found = [
        Lint("a", "passed"),
        Lint("b", "failed", "line 3"),
        Lint("c", "not run", "no such file"),
        Lint("d", "not run", "no such file"),
    ]
    assert summary(found) == [
        "passed: a",
        "failed: b",
        "not run (no such file): c, d",
    ]


def test_nothing_is_pushed(lab: Lab, said) -> None:
    """The remote has the refs that it had."""
    clone = lab.clone()
    before = git(lab.upstream, "for-each-ref")
    make(lab, said, vllm=clone)
    assert git(lab.upstream, "for-each-ref") == before
    assert Repository.find(clone).resolve("refs/remotes/origin/pr-dot") is None


@pytest.mark.parametrize("word", ["--cover-letter", ""])
def test_a_full_disk_leaves_the_old_files(
    lab: Lab, said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    clone = lab.clone()
    folder = make(lab, said, vllm=clone).folder
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    if word:
        failing_git(tmp_path / "bin", monkeypatch, word)
    else:
        write = Path.write_text

        def refuse(path: Path, *words: str) -> int:
            if path.name == "body.md":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(path, *words)

        monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(DiskError, match="No space left") as caught:
        make(lab, said, vllm=clone)
    assert caught.value.hint
    if not word:
        assert str(folder.parent) in caught.value.what
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
