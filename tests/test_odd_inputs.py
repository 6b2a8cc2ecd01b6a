# SPDX-License-Identifier: Apache-2.0
"""Odd patches and odd places, by kind: carried whole, or refused by name."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from series import onto, resuming
from series.check import check
from series.errors import SeriesError
from series.git import Repository
from series.state import sessions

from .conftest import git, seen_state, subjects
from .test_onto import CLASH, TITLES, begin, resolve, resume, states
from .upkeep import Lab, add, both, swap, write_patches

FIRST = "0001-add-the-dot.patch"
Change = Callable[[str], str]


def refused(lab: Lab, said, words: str) -> SeriesError:
    """The one message that a check and a rebase end with; nothing has moved."""
    clone = lab.clone()
    before = seen_state(clone)
    with pytest.raises(SeriesError, match=words) as caught:
        begin(lab, "v0.33.0", said, vllm=clone)
    with pytest.raises(SeriesError, match=words):
        check(lab.manifest, lab.build, said)
    assert seen_state(clone) == before
    assert git(clone, "for-each-ref", "refs/heads/rocm-series") == ""
    assert list(sessions(lab.build)) == []
    return caught.value


def half(text: str) -> str:
    """The first half of it, cut inside a hunk."""
    return text[: text.index("+        return dot(x)") + 10]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (half, "0001-add-the-dot.patch"),
        (lambda text: text.replace("\n", "\r\n"), "0001-add-the-dot.patch"),
        (
            lambda text: text.replace(
                "Why it is so.",
                "Why:\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
            ),
            "0001-add-the-dot.patch",
        ),
        (
            lambda text: text.replace("+++ b/vllm/ops.py", "+++ b/vllm/nops.py"),
            "0001-add-the-dot.patch",
        ),
    ],
    ids=["truncated", "CRLF", "a diff in the message", "two names"],
)
def test_a_damaged_patch_is_refused_by_name(
    lab: Lab, said, change: Change, words: str
) -> None:
    lab.release("0.33.0", add("x.txt", "x\n"))
    path = lab.patches / FIRST
    text = path.read_text()
    with path.open("w", newline="") as file:
        file.write(change(text))
    assert change(text) != text
    error = refused(lab, said, words)
    assert error.hint


def test_bytes_that_are_no_utf8(lab: Lab, said) -> None:
    lab.release("0.33.0", add("x.txt", "x\n"))
    path = lab.patches / FIRST
    path.write_bytes(path.read_bytes().replace(b"Why it is so.", b"Why \xff\xfe so."))
    refused(lab, said, "no patch in UTF-8")


@pytest.mark.parametrize(
    "body",
    [
        "Before.\n\n-- >8 --\n\nAfter.\n",
        ">From here on it is so.\n\nFrom there on it is not.\n",
        "[not a prefix] a line\n\n    indented\n",
        "Signed-off-by: Ann Other <ann@example.com>\n",
    ],
    ids=["scissors", "From lines", "brackets", "sign-off"],
)
def test_odd_messages_are_carried_whole(lab: Lab, said, body: str) -> None:
    lab.release("0.33.0", swap("vllm/ops.py", "import math\n", "import math\n\n"))
    path = lab.patches / FIRST
    path.write_text(path.read_text().replace("Why it is so.\n", body))
    lab.own()
    done = begin(lab, "0.33.0", said)
    assert states(done) == ["moved", "clean", "clean"]
    where = done.landed.where
    message = git(where, "log", "-1", "--format=%B", "rocm-series~2")
    assert message.startswith(f"{TITLES[0]}\n\n{body.rstrip()}")


def remade(lab: Lab, edit: Callable[[Path], None], author: str = "") -> None:
    """Make 0002 from another edit, and another author, by git itself."""
    place = lab.root / "remade"
    git(lab.root, "clone", "-q", str(lab.upstream), str(place))
    git(place, "switch", "-q", "-C", "work", "v0.32.0")
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    parts = sorted(lab.patches.glob("*.patch"))
    flags = ["-q", "--keep-non-patch", "--whitespace=nowarn"]
    git(place, *who, "am", *flags, str(parts[0]))
    edit(place)
    git(place, "add", "-A")
    extra = [f"--author={author}"] if author else []
    git(place, *who, "commit", "-q", "-m", TITLES[1], *extra)
    git(place, *who, "am", *flags, str(parts[2]))
    write_patches(place, lab.patches)
    text = lab.toml.read_text()
    symbols = 'symbols = [{ file = "vllm/core.py", symbol = "value_20" }]\n'
    lab.toml.write_text(text.replace(symbols, ""))


@pytest.mark.parametrize(
    "author", ["Zoë Ünïcode <zoe@example.com>", '"Q. Uote, Jr, Esq" <q@example.com>']
)
def test_authors_are_carried_whole(lab: Lab, said, author: str) -> None:
    lab.release("0.33.0", add("x.txt", "x\n"))
    remade(lab, swap("vllm/core.py", "value_20 = 20", "value_20 = 2"), author)
    lab.own()
    done = begin(lab, "0.33.0", said)
    assert states(done) == ["clean", "clean", "clean"]
    log = git(done.landed.where, "log", "-1", "--format=%an <%ae>", "rocm-series~1")
    assert log.replace('"', "") == author.replace('"', "")


def test_a_binary_and_a_mode_are_carried(lab: Lab, said) -> None:
    def edit(root: Path) -> None:
        (root / "data.bin").write_bytes(bytes(range(256)) * 4)
        (root / "vllm/core.py").chmod(0o755)

    lab.release("0.33.0", swap("vllm/core.py", "value_5 = 5", "value_5 = 55"))
    remade(lab, edit)
    lab.own()
    done = begin(lab, "0.33.0", said)
    assert states(done) == ["clean", "clean", "clean"]
    where = done.landed.where
    assert (where / "data.bin").read_bytes() == bytes(range(256)) * 4
    assert os.access(where / "vllm/core.py", os.X_OK)
    assert "value_5 = 55" in (where / "vllm/core.py").read_text()


def test_a_binary_that_changed_on_both_sides(lab: Lab, said) -> None:
    def edit(root: Path) -> None:
        (root / "data.bin").write_bytes(b"patch\0")

    lab.release("0.33.0", add("data.bin", "upstream\0"))
    remade(lab, edit)
    lab.own()
    done = begin(lab, "0.33.0", said)
    [clash] = done.steps[-1].clashes
    assert clash.path == "data.bin"
    assert "upstream has another one" in clash.reason
    with pytest.raises(SeriesError, match=r"data\.bin is not decided"):
        resume(lab, said)
    (done.tree / "data.bin").write_bytes(b"decided\0")
    assert states(resume(lab, said)) == ["clean", "resolved", "clean"]


def test_a_file_that_moved_upstream(lab: Lab, said) -> None:
    def move(root: Path) -> None:
        (root / "vllm/core").mkdir()
        (root / "vllm/core.py").rename(root / "vllm/core/core.py")

    text = lab.toml.read_text()
    symbols = 'symbols = [{ file = "vllm/core.py", symbol = "value_20" }]\n'
    lab.toml.write_text(text.replace(symbols, ""))
    lab.release("0.33.0", move)
    lab.own()
    done = begin(lab, "0.33.0", said)
    assert states(done) == ["clean", "moved", "clean"]
    assert "vllm/core.py: is vllm/core/core.py there" in done.steps[1].evidence
    where = done.landed.where
    assert "value_20 = 'two'" in (where / "vllm/core/core.py").read_text()
    assert not (where / "vllm/core.py").exists()


def test_a_symbol_that_moved_with_its_file_is_broken(lab: Lab, said) -> None:
    """series.toml says where a name must be: landing elsewhere is not silent."""

    def move(root: Path) -> None:
        (root / "vllm/other").mkdir()
        (root / "vllm/core.py").rename(root / "vllm/other/core.py")

    lab.release("0.33.0", move)
    repo = lab.own()
    before = repo.line("rev-parse", "rocm-series")
    with pytest.raises(SeriesError, match=r"value_20 is 0 times in vllm/core\.py"):
        begin(lab, "0.33.0", said)
    assert repo.line("rev-parse", "rocm-series") == before


def test_paths_that_differ_in_case_alone(lab: Lab, said) -> None:
    """In memory they are two files, whatever the disk makes of them."""
    edits = add("vllm/OPS.py", "loud = 1\n"), add("VLLM/ops.py", "louder = 1\n")
    lab.release("0.33.0", both(*edits))
    clone = lab.clone()
    git(clone, "config", "core.ignoreCase", "true")
    before = seen_state(clone)
    done = begin(lab, "v0.33.0", said, vllm=clone)
    assert states(done) == ["clean"] * 3
    for path, words in (("vllm/OPS.py", "loud = 1"), ("VLLM/ops.py", "louder = 1")):
        assert git(clone, "show", f"rocm-series:{path}") == words
    assert "return dot(x)" in git(clone, "show", "rocm-series:vllm/ops.py")
    assert seen_state(clone) == before


def test_a_stale_rerere_resolution_is_not_used(lab: Lab, said) -> None:
    """The user once resolved this very conflict, wrongly, with rerere on."""
    lab.release("0.33.0", CLASH)
    clone = lab.clone()
    git(clone, "config", "rerere.enabled", "true")
    git(clone, "config", "rerere.autoUpdate", "true")
    git(clone, "config", "user.name", "x")
    git(clone, "config", "user.email", "x@example.com")
    git(clone, "switch", "-q", "-c", "mine", "v0.32.0")
    flags = ["-q", "--keep-non-patch"]
    git(clone, "am", *flags, str(lab.patches / FIRST))
    for text in ("wrong = 1\n", ""):
        with pytest.raises(AssertionError):
            git(clone, "rebase", "-q", "v0.33.0")
        if text:
            (clone / "vllm/ops.py").write_text(text)
            git(clone, "add", "-A")
            git(clone, "-c", "core.editor=true", "rebase", "--continue")
            git(clone, "reset", "-q", "--hard", "ORIG_HEAD")
        else:
            # It is used again by the user's own git, so it is really there.
            assert (clone / "vllm/ops.py").read_text() == "wrong = 1\n"
            git(clone, "rebase", "--abort")
    before = seen_state(clone)
    done = begin(lab, "v0.33.0", said, vllm=clone)
    assert "<<<<<<< upstream" in (done.tree / "vllm/ops.py").read_text()
    resolve(done.tree)
    assert states(resume(lab, said)) == ["resolved", "clean", "clean"]
    assert seen_state(clone) == before


def test_missing_base_blobs_without_their_remote(lab: Lab, said) -> None:
    lab.release("0.33.0", CLASH)
    clone = lab.clone("--filter=blob:none", "--no-checkout")
    away = lab.upstream.rename(lab.root / "away")
    before = seen_state(clone)
    with pytest.raises(SeriesError, match="partial clone without") as caught:
        begin(lab, "v0.33.0", said, vllm=clone)
    assert "with a network" in caught.value.hint
    assert seen_state(clone) == before
    away.rename(lab.upstream)
    assert begin(lab, "v0.33.0", said, vllm=clone).tree


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give files away")
def test_a_clone_of_another_user(lab: Lab, said) -> None:
    clone = lab.clone()
    for path in [clone, *clone.rglob("*")]:
        os.chown(path, 12345, 12345, follow_symlinks=False)
    for act in (
        lambda: begin(lab, "v0.33.0", said, vllm=clone),
        lambda: check(lab.manifest, lab.build, said, clone=clone),
        lambda: resuming.abort(lab.build, clone),
    ):
        with pytest.raises(SeriesError, match="belongs to another user") as caught:
            act()
        assert "safe.directory" in caught.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to mount a small disk")
def test_a_disk_that_fills(lab: Lab, said, tmp_path: Path) -> None:
    """A conflict's work tree does not fit: nothing moved, and nothing is left."""
    lab.release("0.33.0", both(CLASH, add("big.txt", "line\n" * 400_000)))
    clone = lab.clone()
    before = seen_state(clone)
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        with pytest.raises(SeriesError):
            onto.begin(lab.toml, small, "v0.33.0", said, vllm=clone)
        assert seen_state(clone) == before
        for session in sessions(small):
            assert not session.load().ready
            resuming.abort(small, clone)
        assert list(sessions(small)) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)
    done = begin(lab, "v0.33.0", said, vllm=clone)
    resolve(done.tree)
    resume(lab, said)
    assert subjects(clone, "v0.33.0..rocm-series") == TITLES
    assert Repository.find(clone).resolve("rocm-series")
