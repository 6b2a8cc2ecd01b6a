# SPDX-License-Identifier: Apache-2.0
"""Onto another base: what lands, what stops, and every way out of a conflict."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from series import onto, resuming
from series.errors import SeriesError, UsageError
from series.git import Repository
from series.state import StateError, sessions

from .conftest import commit, git, seen_state, subjects
from .full_disk import failing_git
from .upkeep import SERIES, Lab, add, both, in_function, swap

ROOT = Path(__file__).parent.parent
CLASH = in_function("second", "    y = x * w\n", "    y = w * x\n")
TITLES = [title for title, _ in SERIES]


def begin(lab: Lab, name: str, said, **options):
    return onto.begin(lab.toml, lab.build, name, said, **options)


def resume(lab: Lab, said, vllm: Path | None = None, **options):
    return resuming.resume(lab.build, vllm, said, **options)


def resolve(tree: Path) -> None:
    """What a person would make of the clash in vllm/ops.py."""
    text = (tree / "vllm/ops.py").read_text()
    head, _, rest = text.partition("<<<<<<< upstream\n")
    _, _, tail = rest.partition(">>>>>>> patch\n")
    new = "    if w is None:\n        return dot(x)\n    y = w * x\n"
    (tree / "vllm/ops.py").write_text(head + new + tail)


def states(progress) -> list[str]:
    return [step.state for step in progress.steps]


def test_a_release_beside_the_pin(lab: Lab, said) -> None:
    lab.release(
        "0.33.0", swap("vllm/core.py", "value_5 = 5\n", "value_5 = 5\nnew = 1\n")
    )
    repo = lab.own()
    done = begin(lab, "0.33.0", said)
    assert states(done) == ["clean", "moved", "clean"]
    assert "vllm/core.py: +1 lines" in done.steps[1].evidence
    assert done.landed
    assert done.landed.switched
    assert repo.worktree is not None
    assert subjects(repo.worktree, "v0.33.0..rocm-series") == TITLES
    text = (repo.worktree / "vllm/core.py").read_text()
    assert text.count("value_20 = 'two'") == 1
    assert text.count("new = 1") == 1
    assert git(repo.worktree, "status", "--porcelain") == ""
    # The release is a commit of its own: nothing joins it to the pin.
    assert repo.ask("merge-base", "v0.32.0", "v0.33.0") is None


def test_a_second_run_does_nothing(lab: Lab, said) -> None:
    lab.release("0.33.0", add("vllm/more.py", "more = 1\n"))
    lab.own()
    first = begin(lab, "0.33.0", said)
    again = begin(lab, "v0.33.0", said)
    assert again.landed
    assert first.landed
    assert not again.landed.moved
    assert again.landed.tip == first.landed.tip


def test_back_to_the_pin(lab: Lab, said) -> None:
    lab.release("0.33.0", add("vllm/more.py", "more = 1\n"))
    repo = lab.own()
    before = repo.line("rev-parse", "rocm-series")
    begin(lab, "0.33.0", said)
    lab.own()
    assert repo.line("rev-parse", "rocm-series") == before
    assert repo.worktree
    assert not (repo.worktree / "vllm/more.py").exists()


def test_a_revision_of_a_clone_and_nothing_else_changes(lab: Lab, said) -> None:
    lab.release("0.33.0", add("vllm/more.py", "more = 1\n"))
    clone = lab.clone()
    git(clone, "switch", "-q", "-c", "mine", "origin/main")
    (clone / "vllm/core.py").write_text("edited\n")
    (clone / "untracked").write_text("mine\n")
    git(clone, "config", "rerere.enabled", "true")
    before = seen_state(clone)
    done = begin(lab, "origin/releases/0.33.0", said, vllm=clone)
    assert states(done) == ["clean"] * 3
    assert subjects(clone, "v0.33.0..rocm-series") == TITLES
    assert seen_state(clone) == before


def test_a_conflict_names_everything(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    repo = lab.own()
    before = seen_state(repo.worktree)
    branch = repo.line("rev-parse", "rocm-series")
    done = begin(lab, "0.33.0", said)
    [step] = done.steps
    assert step.state == "conflict"
    [clash] = step.clashes
    assert clash.path == "vllm/ops.py"
    lines = (repo.git("cat-file", "blob", "v0.33.0:vllm/ops.py")).decode().splitlines()
    assert lines[clash.line - 1] == "    y = w * x"
    assert "def second" in clash.where
    assert clash.upstream == "    y = w * x\n"
    assert "return dot(x)" in clash.patch
    assert done.tree
    assert "<<<<<<< upstream" in (done.tree / "vllm/ops.py").read_text()
    assert "||||||| pin" in (done.tree / "vllm/ops.py").read_text()
    # The whole tree is there to look around in, and nothing of the user's moved.
    assert (done.tree / "vllm/core.py").exists()
    assert repo.line("rev-parse", "rocm-series") == branch
    after = seen_state(repo.worktree)
    tag = [ref for ref in after["refs"] if "v0.33.0" not in ref]
    assert tag == before["refs"]


def test_continue_lands_and_keeps_the_resolution(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    repo = lab.own()
    tree = begin(lab, "0.33.0", said).tree
    resolve(tree)
    done = resume(lab, said)
    assert states(done) == ["resolved", "clean", "clean"]
    assert repo.worktree is not None
    text = (repo.worktree / "vllm/ops.py").read_text()
    assert text.count("y = w * x") == 1
    assert text.count("return dot(x)") == 1
    [path] = done.recorded
    assert path == lab.patches / "onto/0.33.0/0001-add-the-dot.patch"
    assert b"\nX-Adapts: 0001-add-the-dot.patch " in path.read_bytes()
    message = git(repo.worktree, "log", "-1", "--format=%B", "rocm-series~2")
    assert "X-Adapts" not in message
    assert message.startswith(TITLES[0])
    assert "Co-authored-by: Claude" in message
    assert list(sessions(lab.build)) == []
    tip = done.landed.tip
    # Used next time, also in a fresh tree, with the same result to the byte.
    shutil.rmtree(lab.build)
    lab.own()
    again = begin(lab, "0.33.0", said)
    assert states(again) == ["adapted", "clean", "clean"]
    assert again.landed.tip == tip


def test_an_untouched_conflict_is_not_taken(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    repo = lab.own()
    branch = repo.line("rev-parse", "rocm-series")
    tree = begin(lab, "0.33.0", said).tree
    with pytest.raises(SeriesError, match=r"marks are left in vllm/ops\.py"):
        resume(lab, said)
    git(tree, "checkout", "HEAD", "--", ".")
    (tree / "vllm/dot.py").unlink(missing_ok=True)
    git(tree, "rm", "-q", "--cached", "--ignore-unmatch", "vllm/dot.py")
    with pytest.raises(SeriesError, match="Nothing is left") as caught:
        resume(lab, said)
    assert "apply.py skip" in caught.value.hint
    assert repo.line("rev-parse", "rocm-series") == branch


def test_skip_leaves_it_out_and_says_what_rests_on_it(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    lab.own()
    begin(lab, "0.33.0", said)
    done = resume(lab, said, skip=True)
    # 0002 has nothing to do with it; 0003 changes a file that 0001 adds.
    assert states(done) == ["skipped", "clean", "conflict"]
    assert done.steps[2].notes == ("rests on 0001, which did not land",)
    done = resume(lab, said, skip=True)
    assert states(done) == ["skipped", "clean", "skipped"]
    assert done.landed
    assert subjects(done.landed.where, "v0.33.0..rocm-series") == [TITLES[1]]


def test_abort_leaves_no_trace(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    clone = lab.clone()
    before = seen_state(clone)
    done = begin(lab, "v0.33.0", said, vllm=clone)
    resolve(done.tree)
    state, session = resuming.abort(lab.build, None)
    assert state.onto == "v0.33.0"
    assert not session.folder.exists()
    assert seen_state(clone) == before
    assert git(clone, "for-each-ref", "refs/heads/rocm-series") == ""
    with pytest.raises(StateError, match="No rebase"):
        resuming.abort(lab.build, None)


def test_another_process_in_another_folder_goes_on(lab: Lab, said, tmp_path) -> None:
    lab.release("0.33.0", CLASH)
    clone = lab.clone()
    begin(lab, "v0.33.0", said, vllm=clone)

    def run(*words: str) -> subprocess.CompletedProcess:
        front = [sys.executable, str(ROOT / "apply.py"), "--build", str(lab.build)]
        words = ("--series", str(lab.toml), *words)
        return subprocess.run([*front, *words], cwd="/", capture_output=True, text=True)

    told = run("status", "--vllm", str(clone), "--json")
    [waiting] = json.loads(told.stdout)["waiting"]
    assert waiting["patch"] == "0001-add-the-dot.patch"
    assert waiting["files"] == ["vllm/ops.py"]
    stuck = run("continue")
    assert stuck.returncode == 1
    assert "marks are left" in stuck.stderr
    skipped = run("skip")
    assert skipped.returncode == 3
    assert "vllm/dot.py" in skipped.stderr
    assert "apply.py abort" in skipped.stderr
    assert run("abort").returncode == 0
    nothing = run("continue")
    assert nothing.returncode == 1
    assert "No rebase" in nothing.stderr


def test_two_rebases_need_a_name(lab: Lab, said, monkeypatch) -> None:
    lab.release("0.33.0", CLASH)
    lab.own()
    clone = lab.clone()
    begin(lab, "0.33.0", said)
    begin(lab, "v0.33.0", said, vllm=clone)
    with pytest.raises(StateError, match="Several") as caught:
        resuming.abort(lab.build, None)
    assert "--vllm" in caught.value.hint
    # Inside one of the two it is clear which is meant.
    monkeypatch.chdir(clone)
    state, _ = resuming.abort(lab.build, None)
    assert state.worktree == str(clone)


@pytest.mark.parametrize("what", ["am", "merge", "cherry-pick", "rebase"])
def test_a_users_own_session_is_refused_and_kept(lab: Lab, said, what: str) -> None:
    lab.release("0.33.0", CLASH)
    clone = lab.clone()
    git(clone, "switch", "-q", "-c", "mine", "origin/main")
    git(clone, "switch", "-q", "-c", "theirs")
    (clone / "vllm/core.py").write_text("theirs\n")
    commit(clone, "Theirs\n")
    git(clone, "switch", "-q", "mine")
    (clone / "vllm/core.py").write_text("ours\n")
    commit(clone, "Ours\n")
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    if what == "am":
        git(clone, "format-patch", "-q", "-o", str(lab.root / "p"), "-1", "theirs")
        words = ["am", str(next((lab.root / "p").glob("*")))]
    else:
        words = [what, "theirs"]
    with pytest.raises(AssertionError):
        git(clone, *who, *words)
    before = seen_state(clone)
    with pytest.raises(StateError, match="No rebase of the series") as caught:
        resume(lab, said, clone)
    assert "of your own" in caught.value.hint
    with pytest.raises(StateError):
        resuming.abort(lab.build, clone)
    done = begin(lab, "v0.33.0", said, vllm=clone)
    assert done.tree
    resuming.abort(lab.build, clone)
    assert seen_state(clone) == before


def test_a_rebase_inside_the_conflicts_tree_is_not_ours(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    lab.own()
    tree = begin(lab, "0.33.0", said).tree
    (tree / ".git/MERGE_HEAD").write_text("0" * 40 + "\n")
    for act in (lambda: resume(lab, said), lambda: resuming.abort(lab.build, None)):
        with pytest.raises(SeriesError, match="in the middle of a merge"):
            act()
    (tree / ".git/MERGE_HEAD").unlink()
    resolve(tree)
    commit(tree, "A commit of the user's own\n")
    with pytest.raises(SeriesError, match="committed or switched") as caught:
        resume(lab, said)
    git(tree, *caught.value.hint.split("' ")[1].split())
    assert states(resume(lab, said)) == ["resolved", "clean", "clean"]


def test_patches_that_changed_meanwhile(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    lab.own()
    tree = begin(lab, "0.33.0", said).tree
    lab.amend(3, "round(x.sum())", "float(x.sum())")
    resolve(tree)
    with pytest.raises(StateError, match="patches/ has changed"):
        resume(lab, said)


def test_the_branch_moved_meanwhile(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    clone = lab.clone()
    done = begin(lab, "v0.33.0", said, vllm=clone)
    git(clone, "branch", "rocm-series", "v0.32.0")
    resolve(done.tree)
    with pytest.raises(SeriesError, match="has moved since"):
        resume(lab, said)
    assert git(clone, "rev-parse", "rocm-series") == git(clone, "rev-parse", "v0.32.0")
    # With the branch as it was, the same command finishes: nothing was lost.
    git(clone, "branch", "-D", "rocm-series")
    assert states(resume(lab, said)) == ["resolved", "clean", "clean"]


def test_own_commits_on_the_branch_are_not_lost(lab: Lab, said) -> None:
    lab.release("0.33.0", add("vllm/more.py", "more = 1\n"))
    repo = lab.own()
    assert repo.worktree is not None
    (repo.worktree / "vllm/mine.py").write_text("mine = 1\n")
    commit(repo.worktree, "Mine\n")
    mine = repo.line("rev-parse", "rocm-series")
    with pytest.raises(SeriesError, match="rocm-series"):
        begin(lab, "0.33.0", said)
    assert repo.line("rev-parse", "rocm-series") == mine
    done = begin(lab, "0.33.0", said, force=True)
    assert done.landed
    [saved] = done.landed.saved
    assert repo.line("rev-parse", saved) == mine


def test_edits_in_the_way_stop_it_at_once(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    repo = lab.own()
    assert repo.worktree is not None
    (repo.worktree / "vllm/core.py").write_text("edited\n")
    with pytest.raises(SeriesError, match="uncommitted"):
        begin(lab, "0.33.0", said)
    assert list(sessions(lab.build)) == []


def test_stopping_at_a_patch_that_lands(lab: Lab, said) -> None:
    lab.release("0.33.0", add("vllm/more.py", "more = 1\n"))
    repo = lab.own()
    tree = begin(lab, "0.33.0", said, edit=("0003",)).tree
    text = (tree / "vllm/dot.py").read_text()
    assert "round(x.sum())" in text
    (tree / "vllm/dot.py").write_text(text.replace("round", "float"))
    done = resume(lab, said)
    assert states(done) == ["clean", "clean", "resolved"]
    assert repo.worktree is not None
    assert "float(x.sum())" in (repo.worktree / "vllm/dot.py").read_text()


def test_a_second_rebase_waits_for_the_first(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    lab.own()
    begin(lab, "0.33.0", said)
    with pytest.raises(StateError, match="under way here"):
        begin(lab, "0.33.0", said)


@pytest.mark.parametrize("name", ["0.99.0", "main"])
def test_an_unknown_release(lab: Lab, said, name: str) -> None:
    lab.own()
    with pytest.raises(UsageError, match=f"{name} is no release"):
        begin(lab, name, said)


def test_an_unknown_revision_and_a_release_that_is_not_fetched(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    clone = lab.clone("--no-tags", "--single-branch", "-b", "main")
    git(clone, "fetch", "-q", "origin", "tag", "v0.32.0")
    with pytest.raises(UsageError, match="no revision"):
        begin(lab, "origin/nothing", said, vllm=clone)
    with pytest.raises(SeriesError, match=r"has no v0\.33\.0") as caught:
        begin(lab, "0.33.0", said, vllm=clone)
    assert "fetch origin tag v0.33.0" in caught.value.hint


def test_a_broken_result_is_not_landed(lab: Lab, said) -> None:
    lab.release(
        "0.33.0",
        both(add("vllm/x.py", "x = 1\n"), swap("vllm/core.py", "value_40", "v")),
    )
    repo = lab.own()
    before = repo.line("rev-parse", "rocm-series")
    tree = begin(lab, "0.33.0", said, edit=("0002",)).tree
    (tree / "vllm/core.py").write_text("def broken(:\n")
    with pytest.raises(SeriesError, match=r"vllm/core\.py:1 does not compile"):
        resume(lab, said)
    assert repo.line("rev-parse", "rocm-series") == before


def test_a_gone_repository(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    clone = lab.clone()
    begin(lab, "v0.33.0", said, vllm=clone)
    shutil.rmtree(clone)
    with pytest.raises(StateError, match="is gone"):
        resume(lab, said)
    resuming.abort(lab.build, None)
    assert list(sessions(lab.build)) == []


def test_a_linked_worktree_as_target(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    clone = lab.clone()
    linked = lab.root / "linked"
    git(clone, "worktree", "add", "-q", "--detach", str(linked), "origin/main")
    before = seen_state(clone)
    done = begin(lab, "v0.33.0", said, vllm=linked)
    resolve(done.tree)
    resume(lab, said, linked)
    assert subjects(clone, "v0.33.0..rocm-series") == TITLES
    assert seen_state(clone) == before
    assert git(clone, "worktree", "list", "--porcelain").count("worktree ") == 2


def test_a_partial_clone(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    clone = lab.clone("--filter=blob:none", "--no-checkout")
    done = begin(lab, "v0.33.0", said, vllm=clone)
    # What this clone lacks is not fetched to look at: the patch's files are there.
    there = {path.name for path in (done.tree / "vllm").iterdir()}
    assert {"dot.py", "ops.py"} <= there
    assert "__init__.py" not in there
    resolve(done.tree)
    assert states(resume(lab, said)) == ["resolved", "clean", "clean"]
    assert subjects(clone, "v0.33.0..rocm-series") == TITLES
    ours = Repository.find(clone).git("ls-tree", "-r", "--name-only", "rocm-series")
    assert b".github/PULL_REQUEST_TEMPLATE.md" in ours


def test_the_status_says_where_the_branch_is(lab: Lab, said) -> None:
    from series.status import look

    lab.release("0.33.0", add("vllm/more.py", "more = 1\n"))
    lab.own()
    assert look(lab.toml, lab.build, None).sync == "in sync with patches/"
    begin(lab, "0.33.0", said)
    assert look(lab.toml, lab.build, None).sync.startswith("on v0.33.0, not on the pin")


def test_a_conflict_that_cannot_be_laid_out_is_not_waited_for(
    lab: Lab, said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.release("0.33.0", CLASH)
    lab.own()
    armed = failing_git(tmp_path / "bin", monkeypatch, "checkout-index")
    with pytest.raises(SeriesError, match="No space left"):
        begin(lab, "0.33.0", said)
    assert list((lab.build / "onto").iterdir()) == []
    armed.unlink()
    done = begin(lab, "0.33.0", said)
    assert done.tree
    assert git(done.tree, "ls-files", "-d", "-t") == ""
    assert not git(done.tree, "ls-files", "-v").startswith("S")


@pytest.mark.parametrize("skip", [False, True])
def test_a_later_conflict_that_cannot_be_laid_out_is_gone_on_with(
    lab: Lab, said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skip: bool
) -> None:
    lab.release("0.34.0", both(CLASH, swap("vllm/core.py", "value_20 = 20\n", "v\n")))
    lab.own()
    first = begin(lab, "0.34.0", said)
    assert first.tree
    if not skip:
        resolve(first.tree)
    armed = failing_git(tmp_path / "bin", monkeypatch, "checkout-index")
    with pytest.raises(SeriesError, match="No space left"):
        resume(lab, said, skip=skip)
    armed.unlink()
    done = resume(lab, said, skip=skip)
    assert states(done)[0] == ("skipped" if skip else "resolved")
    assert states(done)[1] == "conflict"
    assert done.tree
    assert "<<<<<<< upstream" in (done.tree / "vllm/core.py").read_text()
