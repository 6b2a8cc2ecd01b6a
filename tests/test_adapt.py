# SPDX-License-Identifier: Apache-2.0
"""The rule by which a recorded adaptation is used, and how it is kept."""

import errno
import os
import re
from pathlib import Path

import pytest

from series import adapt, resuming
from series.errors import DiskError, SeriesError
from series.mail import read_mail
from series.readapt import ReadaptError, readapt
from series.scratch import scratch_over

from .conftest import commit, git
from .test_onto import CLASH, begin, resolve, resume, states
from .upkeep import SERIES, Lab, add, both, swap


@pytest.fixture
def adapted(lab: Lab, said) -> Path:
    """An adaptation of 0001 to 0.33.0, made by hand and committed."""
    lab.release("0.33.0", CLASH)
    lab.own()
    resolve(begin(lab, "0.33.0", said).tree)
    [path] = resume(lab, said).recorded
    lab.save("Adapt")
    return path


def test_folders_are_named_by_release(lab: Lab) -> None:
    folder = lab.patches / "onto"
    assert adapt.folder_for(lab.manifest, "v0.33.0") == folder / "0.33.0"
    assert adapt.folder_for(lab.manifest, "origin/main") == folder / "origin-main"
    assert adapt.folder_for(lab.manifest, "../x").parent == folder


def test_the_digest_is_of_the_change_alone(lab: Lab, tmp_path: Path) -> None:
    repo = lab.own()
    path = lab.patches / "0001-add-the-dot.patch"
    text = path.read_text()
    again = {
        "same": text,
        "moved": re.sub(r"(?m)^@@ -\d+,(\d+) \+\d+", r"@@ -90,\1 +91", text),
        "reworded": text.replace("Why it is so.", "Why not."),
        "other": text.replace("return dot(x)", "return  dot(x)"),
    }
    with scratch_over(repo) as scratch:
        digests = {}
        for name, new in again.items():
            (tmp_path / name).write_text(new)
            digests[name] = adapt.digest_of(read_mail(scratch, tmp_path / name))
    assert again["moved"] != text
    assert digests["same"] == digests["moved"] == digests["reworded"]
    # A blank counts: in Python it may be all of a change.
    assert digests["other"] != digests["same"]


def test_an_amended_patch_outdates_it(lab: Lab, adapted: Path, said) -> None:
    lab.amend(1, "return dot(x)", "return dot(x) + 0")
    done = begin(lab, "0.33.0", said)
    assert states(done) == ["conflict"]
    assert done.steps[0].notes == (
        "outdated, not used: 0001-add-the-dot.patch was made for another form of this "
        "patch",
    )


def test_a_base_that_differs_outdates_it(lab: Lab, adapted: Path, said) -> None:
    """The release's file is not the one that the adaptation was made for."""
    text = adapted.read_text()
    start = text.index("index ", text.index("diff --git a/vllm/ops.py"))
    adapted.write_text(text[: start + 6] + "1" * 40 + text[start + 46 :])
    done = begin(lab, "0.33.0", said)
    assert states(done) == ["conflict"]
    assert "was made for another vllm/ops.py" in done.steps[0].notes[0]


def test_an_edited_one_is_refused(lab: Lab, adapted: Path, said) -> None:
    text = adapted.read_text()
    adapted.write_text(text.replace("+    y = w", "+    y = 2 * w", 1))
    changed = text.replace("return dot(x)", "return dot( x)", 1)
    adapted.write_text(changed)
    with pytest.raises(SeriesError, match="does not lead to the blobs"):
        begin(lab, "0.33.0", said)


def test_two_of_one_number(lab: Lab, adapted: Path, said) -> None:
    adapted.with_name("0001-again.patch").write_bytes(adapted.read_bytes())
    with pytest.raises(SeriesError, match="two adaptations of 0001"):
        begin(lab, "0.33.0", said)


def test_one_that_says_nothing_of_its_source(lab: Lab, adapted: Path, said) -> None:
    lines = adapted.read_text().splitlines(keepends=True)
    adapted.write_text("".join(x for x in lines if not x.startswith("X-Adapts")))
    with pytest.raises(SeriesError, match="no X-Adapts line"):
        begin(lab, "0.33.0", said)


def test_leaving_it_out_records_it_anew(lab: Lab, adapted: Path, said) -> None:
    before = adapted.read_bytes()
    tree = begin(lab, "0.33.0", said, anew=True).tree
    text = (tree / "vllm/ops.py").read_text()
    assert "<<<<<<< upstream" in text
    resolve(tree)
    swap("vllm/ops.py", "    y = w * x\n", "    y = (w * x)\n")(tree)
    resume(lab, said)
    assert adapted.read_bytes() != before
    assert b"+    y = (w * x)" in adapted.read_bytes()


def test_a_renamed_patch_replaces_the_old_file(lab: Lab, adapted: Path, said) -> None:
    (lab.patches / "0001-add-the-dot.patch").rename(lab.patches / "0001-dot.patch")
    text = lab.toml.read_text().replace("0001-add-the-dot.patch", "0001-dot.patch")
    lab.toml.write_text(text)
    done = begin(lab, "0.33.0", said)
    # The digest counts, not the name.
    assert states(done) == ["adapted", "clean", "clean"]


def test_an_amendment_elsewhere_is_merged_into_it(
    lab: Lab, adapted: Path, said
) -> None:
    lab.amend(1, "def dot(x):\n", "def dot(x):\n    x = x + 0\n")
    [path] = readapt(lab.toml, lab.build, "0.33.0", said)
    assert path == adapted
    done = begin(lab, "0.33.0", said)
    assert done.steps[0].state == "adapted"
    where = done.tree or done.landed.where
    assert "x = x + 0" in git(where, "show", f"{done.steps[0].commit}:vllm/dot.py")
    assert "y = w * x" in git(where, "show", f"{done.steps[0].commit}:vllm/ops.py")
    assert readapt(lab.toml, lab.build, "0.33.0", said) == []


def test_an_amendment_of_adapted_lines_needs_a_person(
    lab: Lab, adapted: Path, said
) -> None:
    before = adapted.read_bytes()
    lab.amend(1, "return dot(x)\n    y = x * w", "return dot(x)\n    y = x * w * 1")
    with pytest.raises(SeriesError, match="meets lines that its adaptation") as caught:
        readapt(lab.toml, lab.build, "0.33.0", said)
    assert caught.value.code == 3
    assert adapted.read_bytes() == before


def _adapt_by_hand(lab: Lab, said, number: str, path: str, old: str, new: str) -> Path:
    """Stop at a patch that lands, and record it in another form."""
    tree = begin(lab, "0.33.0", said, edit=(number,)).tree
    swap(path, old, new)(tree)
    [made] = resume(lab, said).recorded
    lab.save("Adapt")
    return made


def _landed(lab: Lab, said, path: str) -> str:
    done = begin(lab, "0.33.0", said)
    assert done.landed
    return git(lab.build / "vllm", "show", f"rocm-series:{path}") + "\n"


def test_an_amendment_below_is_carried_into_it(lab: Lab, adapted: Path, said) -> None:
    """An adaptation of a patch that was not amended itself follows what lies below."""
    words = ("vllm/core.py", "value_20 = 'two'", "value_20 = 'zwei'")
    above = _adapt_by_hand(lab, said, "0002", *words)
    lab.amend(1, "value_40 = 40\n", "value_40 = 'forty'\n")
    assert readapt(lab.toml, lab.build, "0.33.0", said) == [adapted, above]
    text = _landed(lab, said, "vllm/core.py")
    assert "value_20 = 'zwei'" in text
    assert "value_40 = 'forty'" in text
    assert readapt(lab.toml, lab.build, "0.33.0", said) == []


def test_an_amendment_of_what_is_merged_there_stays_out(
    lab: Lab, said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the patch's own amendment is merged, not that of one which is left out."""
    merged = "def upstream_dot(x):\n    return x\n\n\ndef dot(x):\n    return x.sum()\n"
    lab.release("0.33.0", add("vllm/dot.py", merged))
    lab.own()
    words = ("vllm/dot.py", "round(x.sum())", "round(x.sum(), 1)")
    above = _adapt_by_hand(lab, said, "0003", *words)
    more = {
        1: ("value_40 = 40\n", "value_40 = 4\n"),
        3: ("value_5 = 5\n", "value_5 = 0\n"),
    }
    series = [
        (title, both(edit, swap("vllm/core.py", *more[n])) if n in more else edit)
        for n, (title, edit) in enumerate(SERIES, 1)
    ]
    monkeypatch.setattr("tests.upkeep.SERIES", series)
    lab.amend(1, "no such text", "")
    assert readapt(lab.toml, lab.build, "0.33.0", said) == [above]
    core = _landed(lab, said, "vllm/core.py")
    assert "value_5 = 0\n" in core
    assert "value_40 = 40\n" in core
    assert "round(x.sum(), 1)" in _landed(lab, said, "vllm/dot.py")


def test_a_message_is_always_the_patch_s_own(lab: Lab, adapted: Path, said) -> None:
    patch = lab.patches / "0001-add-the-dot.patch"
    patch.write_text(patch.read_text().replace("Why it is so.", "Why, as measured."))
    lab.save("Say more")
    before = adapted.read_text()
    assert "Why it is so." in before
    assert readapt(lab.toml, lab.build, "0.33.0", said) == [adapted]
    assert adapted.read_text() == before.replace("Why it is so.", "Why, as measured.")
    assert readapt(lab.toml, lab.build, "0.33.0", said) == []


def test_a_conflict_without_adaptation_does_not_stop_the_others(lab: Lab, said) -> None:
    more = swap("vllm/core.py", "value_20 = 20", "value_20 = 200")
    lab.release("0.33.0", both(CLASH, more))
    lab.own()
    resolve(begin(lab, "0.33.0", said).tree)
    [adapted] = resume(lab, said).recorded
    resuming.abort(lab.build, None)
    lab.save("Adapt")
    lab.amend(1, "def dot(x):\n", "def dot(x):\n    x = x + 0\n")
    assert readapt(lab.toml, lab.build, "0.33.0", said) == [adapted]
    assert "x = x + 0" in adapted.read_text()
    assert [line for line in said.lines if "0002-move-values" in line] == [
        "0002-move-values.patch has no adaptation to v0.33.0 and conflicts: "
        "apply.py apply --onto v0.33.0"
    ]


def test_a_source_that_was_never_committed(lab: Lab, adapted: Path, said) -> None:
    text = adapted.read_text()
    start = text.index(" ", text.index("X-Adapts: ") + 10) + 1
    adapted.write_text(text[:start] + "0" * 40 + text[start + 40 :])
    with pytest.raises(ReadaptError, match="never had"):
        readapt(lab.toml, lab.build, "0.33.0", said)


def test_a_resolution_is_kept_though_the_rest_is_given_up(lab: Lab, said) -> None:
    more = swap("vllm/core.py", "value_20 = 20", "value_20 = 200")
    lab.release("0.33.0", both(CLASH, more, add("x.txt", "x\n")))
    lab.own()
    resolve(begin(lab, "0.33.0", said).tree)
    done = resume(lab, said)
    assert states(done) == ["resolved", "conflict"]
    resuming.abort(lab.build, None)
    again = begin(lab, "0.33.0", said)
    assert states(again) == ["adapted", "conflict"]


@pytest.mark.parametrize("options", [[], ["--filter=blob:none", "--no-checkout"]])
def test_a_later_revision_by_way_of_the_release(
    lab: Lab, adapted: Path, said, options: list[str]
) -> None:
    """What was adapted to a release has the smaller way to what follows it."""
    git(lab.upstream, "switch", "-q", "-C", "main", "v0.33.0")
    swap("vllm/ops.py", "import math\n", "import math\nimport os\n")(lab.upstream)
    commit(lab.upstream, "Later\n", "2026-11-20T00:00:00+00:00")
    clone = lab.clone(*options)
    done = begin(lab, "origin/main", said, vllm=clone)
    assert states(done) == ["moved", "clean", "clean"]
    assert done.steps[0].notes == ("by way of v0.33.0 (adapted)",)
    text = git(clone, "show", "rocm-series:vllm/ops.py")
    for words in ("import os", "y = w * x", "return dot(x)"):
        assert text.count(words) == 1
    # Without that way the same patch is a conflict.
    again = begin(lab, "origin/main", said, vllm=clone, anew=True)
    assert states(again) == ["conflict"]


def test_an_adaptation_that_cannot_be_kept_leaves_nothing(
    lab: Lab, said, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.release("0.33.0", CLASH)
    lab.own()
    resolve(begin(lab, "0.33.0", said).tree)

    def refuse(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(DiskError, match="No space left") as caught:
            resume(lab, said)
    folder = lab.patches / "onto/0.33.0"
    assert str(folder) in caught.value.what
    assert list(folder.iterdir()) == []
    [path] = resume(lab, said).recorded
    assert list(folder.iterdir()) == [path]
