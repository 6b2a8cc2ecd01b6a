# SPDX-License-Identifier: Apache-2.0
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from series.errors import DiskError
from series.git import Repository
from series.mail import ABSENT, Change, PatchError, read_mail, tidy
from series.scratch import Scratch, scratch_over

from .conftest import LONG, World, git


@pytest.fixture
def scratch(clone: Path):
    with scratch_over(Repository.find(clone)) as made:
        yield made


def test_a_patch_is_read_whole(world: World, scratch: Scratch) -> None:
    mail = read_mail(scratch, world.patches / "0001-fast-path.patch")
    assert mail.name == "0001-fast-path.patch"
    assert mail.author == ("Dev Eloper", "dev@example.com")
    assert mail.date == "Tue, 1 Sep 2026 10:00:00 +0200"
    assert mail.subject == "[ROCm][Perf] Add the fast path [x]"
    assert mail.message == f"{mail.subject}\n\nWhy, with an é.\n\n- a list\n"
    old = git(world.upstream, "rev-parse", "v0.32.0:vllm/ops.py")
    assert [change.path for change in mail.changes] == ["vllm/dot é.py", "vllm/ops.py"]
    assert mail.changes[0].pre == ABSENT
    assert mail.changes[1].pre == old
    assert len(mail.changes[1].post) == 40


def test_a_folded_subject_is_one_line(world: World, scratch: Scratch) -> None:
    mail = read_mail(scratch, world.patches / "0002-rework-core.patch")
    assert mail.subject == LONG
    assert mail.message == f"{LONG}\n"


def test_modes_binaries_and_deletions(world: World, scratch: Scratch) -> None:
    mail = read_mail(scratch, world.patches / "0003-move-old.patch")
    changes = {change.path: change for change in mail.changes}
    assert changes["vllm/old.py"].post == ABSENT
    assert changes["empty.txt"].pre == ABSENT
    assert "data.bin" in changes
    assert "tools/run.sh" not in changes
    assert "tools/run.sh" in mail.paths


HEADER = """\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A <a@example.com>
Date: Tue, 1 Sep 2026 10:00:00 +0200
Subject: One

Body

"""
DIFF = f"""\
diff --git a/x b/x
index {"1" * 40}..{"2" * 40} 100644
--- a/x
+++ b/x
@@ -1 +1 @@
-diff --git a/y b/y
+index {"3" * 40}..{"4" * 40}
"""


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "0001-x.patch"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_lines_inside_hunks_are_no_headers(scratch: Scratch, tmp_path: Path) -> None:
    mail = read_mail(scratch, written(tmp_path, HEADER + DIFF))
    assert mail.changes == (Change("x", "1" * 40, "2" * 40),)
    assert mail.paths == ("x",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no patch"),
        ("just a text\n", "has no author"),
        (HEADER, "changes no file"),
        (HEADER.replace("From: A <a@example.com>\n", "") + DIFF, "has no author"),
        (HEADER.replace("Subject: One\n", "") + DIFF, "has no subject"),
        (HEADER.replace("Date:", "X-Date:") + DIFF, "has no date"),
        (HEADER + DIFF.replace("1" * 40, "1" * 9), "abbreviated blob ids .x."),
        (HEADER + DIFF.replace("b/x", "b/z"), "renames a file"),
        (HEADER + DIFF.replace("a/x b/x", "x x"), "no a/ and b/ prefixes"),
        (
            HEADER + "diff --git a/x b/x\nsimilarity index 90%\nrename from x\n",
            "renames a file",
        ),
    ],
)
def test_what_is_no_patch_is_named(
    scratch: Scratch, tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(PatchError, match=words) as caught:
        read_mail(scratch, written(tmp_path, text))
    assert "0001-x.patch" in caught.value.what
    assert "export" in caught.value.hint


def test_a_file_that_is_not_there_or_no_text(scratch: Scratch, tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="cannot be read"):
        read_mail(scratch, tmp_path / "none.patch")
    latin = HEADER.replace("Body", "B\xf6dy") + DIFF
    path = written(tmp_path, latin.encode("latin1"))
    with pytest.raises(PatchError, match="no patch in UTF-8"):
        read_mail(scratch, path)


@given(st.text(alphabet="ab \t\n#é", max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_tidy_is_stable_and_loses_no_word(text: str) -> None:
    once = tidy(text)
    assert tidy(once) == once
    assert once.split() == text.split()
    assert "\n\n\n" not in once
    assert once.endswith("\n")
    assert not any(line != line.rstrip() for line in once.split("\n"))


@given(
    st.text(
        alphabet=st.characters(codec="utf-8", exclude_characters="\0/\n\r"),
        min_size=1,
        max_size=12,
    ).filter(lambda name: name not in (".", "..") and name.lower() != ".git")
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=25,
)
def test_any_file_name_is_read_back(scratch: Scratch, name: str) -> None:
    oid = scratch.git("hash-object", "-w", "--stdin", stdin=b"x\n").decode().strip()
    line = f"100644 blob {oid}\t".encode() + name.encode() + b"\0"
    tree = scratch.git("mktree", "-z", stdin=line).decode().strip()
    empty = scratch.git("mktree", stdin=b"").decode().strip()
    diff = scratch.git("diff-tree", "-r", "-p", "--full-index", empty, tree)
    path = written(scratch.folder, HEADER.encode() + diff)
    assert read_mail(scratch, path).changes == (Change(name, ABSENT, oid),)


@pytest.mark.parametrize("keep", [0, 1, 40, 400, -30, -1])
@pytest.mark.parametrize("name", ["0001-fast-path", "0003-move-old"])
def test_what_a_full_disk_cut_off_is_no_fault_of_the_patch(
    world: World,
    scratch: Scratch,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    keep: int,
) -> None:
    git_itself = Repository.git

    def cutting(repo: Repository, *words: str, **named) -> bytes:
        out = git_itself(repo, *words, **named)
        if words[0] == "mailinfo":
            # It ends with 0 all the same.
            Path(words[-1]).write_bytes(Path(words[-1]).read_bytes()[:keep])
        return out

    monkeypatch.setattr(Repository, "git", cutting)
    with pytest.raises(DiskError, match=f"what was read of {name}") as caught:
        read_mail(scratch, world.patches / f"{name}.patch")
    assert f"{tempfile.gettempdir()} (TMPDIR): No space left" in caught.value.what
    assert "TMPDIR" in caught.value.hint


def test_a_message_that_was_cut_off_is_noticed(
    world: World, scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    git_itself = Repository.git

    def cutting(repo: Repository, *words: str, **named) -> bytes:
        out = git_itself(repo, *words, **named)
        if words[0] == "mailinfo":
            Path(words[-2]).write_bytes(Path(words[-2]).read_bytes()[:6])
        return out

    monkeypatch.setattr(Repository, "git", cutting)
    with pytest.raises(DiskError, match="is cut off"):
        read_mail(scratch, world.patches / "0001-fast-path.patch")
