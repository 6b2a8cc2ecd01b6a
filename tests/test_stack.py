# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest

from series.git import Repository
from series.mail import Change, PatchError, read_mail
from series.pins import IDENTITY_EMAIL, IDENTITY_NAME
from series.scratch import Scratch, scratch_over
from series.stack import build_stack, diff_files, read_commits

from .conftest import SERIES, World, git


@pytest.fixture
def scratch(world: World, clone: Path):
    with scratch_over(Repository.find(clone)) as made:
        made.begin_at(world.pin)
        yield made


def mails_of(scratch: Scratch, world: World):
    return [read_mail(scratch, path) for path in world.manifest.files]


def test_each_patch_becomes_a_commit(world: World, scratch: Scratch) -> None:
    tips = build_stack(scratch, world.pin, mails_of(scratch, world))
    commits = read_commits(scratch, world.pin, tips[-1])
    assert [commit.oid for commit in commits] == tips
    assert [commit.subject for commit in commits] == [s for s, _, _ in SERIES]
    assert commits[0].parents == (world.pin,)
    assert commits[-1].tree == world.tree
    for commit in commits:
        assert commit.author == ("Dev Eloper", "dev@example.com")
        assert commit.committer == (IDENTITY_NAME, IDENTITY_EMAIL)
        assert (
            scratch.line("log", "-1", "--format=%ct", commit.oid)
            == (commit.date.split()[0])
        )


def test_nothing_on_nothing(world: World, scratch: Scratch) -> None:
    assert build_stack(scratch, world.pin, []) == []
    assert read_commits(scratch, world.pin, world.pin) == []


def test_twice_is_an_error(world: World, scratch: Scratch) -> None:
    first = mails_of(scratch, world)[0]
    with pytest.raises(PatchError, match=r"0001-fast-path.*does not apply.*already"):
        build_stack(scratch, world.pin, [first, first])


def test_a_hunk_that_lands_in_a_look_alike_is_an_error(
    world: World, clone: Path, scratch: Scratch
) -> None:
    """git takes the hunk for the function that stands at its lines; we do not."""
    git(clone, "switch", "-q", "--detach", "v0.32.0")
    text = (clone / "vllm/ops.py").read_text()
    start, end = text.index("def first"), text.index("def second")
    # With a function less before it, the third stands where the second was.
    (clone / "vllm/ops.py").write_text(text[:start] + text[end:])
    git(clone, "-c", "user.name=D", "-c", "user.email=d@e", "commit", "-qam", "Less")
    wrong = git(clone, "rev-parse", "HEAD")
    git(clone, "apply", "--check", str(world.patches / "0001-fast-path.patch"))
    with pytest.raises(PatchError, match=r"0001-fast-path.*vllm/ops\.py"):
        build_stack(scratch, wrong, mails_of(scratch, world)[:1])


def test_other_blobs_than_named_are_an_error(world: World, scratch: Scratch) -> None:
    mail = mails_of(scratch, world)[0]
    lies = tuple(Change(c.path, c.pre, "3" * 40) for c in mail.changes)
    with pytest.raises(PatchError, match="does not lead to the blobs"):
        build_stack(scratch, world.pin, [replace(mail, changes=lies)])
    with pytest.raises(PatchError, match="does not lead to the blobs"):
        build_stack(scratch, world.pin, [replace(mail, changes=mail.changes[:1])])


def test_an_edited_hunk_is_an_error(world: World, scratch: Scratch) -> None:
    mail = mails_of(scratch, world)[0]
    diff = mail.diff.replace(b"dot(x, w)\n", b"dot(w, x)\n", 1)
    assert diff != mail.diff
    with pytest.raises(PatchError, match="does not lead to the blobs"):
        build_stack(scratch, world.pin, [replace(mail, diff=diff)])


def test_lines_are_counted_per_file(world: World, scratch: Scratch) -> None:
    tips = build_stack(scratch, world.pin, mails_of(scratch, world))
    files = {f.path: f for f in diff_files(scratch, tips[1], tips[2])}
    assert set(files) == {
        "data.bin",
        "empty.txt",
        "tools/run.sh",
        "vllm/new.py",
        "vllm/old.py",
    }
    assert (files["vllm/old.py"].added, files["vllm/old.py"].removed) == (0, 27)
    assert (files["data.bin"].added, files["data.bin"].removed) == (0, 0)
    assert files["tools/run.sh"].pre == files["tools/run.sh"].post


def test_spaces_and_trailing_blanks_survive(world: World, scratch: Scratch) -> None:
    tips = build_stack(scratch, world.pin, mails_of(scratch, world))
    assert b"value_3 = 33   \n" in scratch.git("show", f"{tips[1]}:vllm/core.py")
    assert scratch.git("show", f"{tips[1]}:win.txt") == b"first\r\nzweite\r\nthird\r\n"
    assert scratch.git("show", f"{tips[1]}:bare-end.txt")[-1:] != b"\n"
