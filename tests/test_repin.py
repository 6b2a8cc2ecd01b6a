# SPDX-License-Identifier: Apache-2.0
"""The pin moves in one change: patches, series.toml, adaptations and outcomes."""

import errno
import shutil
from pathlib import Path

import pytest

from series import renew, resuming
from series.check import check
from series.commands import apply_own, export
from series.errors import ConflictError, SeriesError, UsageError
from series.expected import record_expected
from series.manifest import ManifestError, load_manifest
from series.pinning import repinned_text
from series.repin import RepinError, repin

from .conftest import git
from .test_onto import CLASH, TITLES, begin, resolve, resume, subjects
from .upkeep import SERIES, Lab, add, both, swap


@pytest.fixture(scope="module")
def prepared(built_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An older release with an adaptation, and a newer one that has 0002."""

    def quiet(line: str) -> None:
        pass

    root = tmp_path_factory.mktemp("prepared") / "lab"
    shutil.copytree(built_lab.root, root, symlinks=True)
    lab = Lab(root, root / "upstream", root / "project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        lab.release("0.31.0", CLASH)
        moved = swap("vllm/core.py", "value_2 = 2\n", "")
        lab.release("0.33.0", both(SERIES[1][1], moved))
        lab.own()
        resolve(begin(lab, "0.31.0", quiet).tree)
        resume(lab, quiet)
        apply_own(lab.toml, lab.build, None, force=False)
        found = check(lab.manifest, lab.build, quiet, compare=False)
        steps = {column.onto: list(column.steps) for column in found.columns}
        record_expected(lab.manifest, steps)
        lab.save("Adapt")
    return root


@pytest.fixture
def lab(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A copy of that."""
    root = tmp_path / "lab"
    shutil.copytree(prepared, root, symlinks=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    return Lab(root, root / "upstream", root / "project")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_everything_moves_together(lab: Lab, said) -> None:
    old = lab.manifest
    done = repin(lab.toml, lab.build, "0.33.0", said)
    manifest = load_manifest(lab.toml)
    assert (done.old, done.new) == ("v0.32.0", "v0.33.0")
    assert manifest.pin.tag == "v0.33.0"
    assert [release.tag for release in manifest.release] == ["v0.31.0", "v0.32.0"]
    # The old pin's facts are those of a release now.
    assert manifest.release[1] == old.pin
    # 0002 is upstream: its patch and table are gone, and 0003 moves up.
    files = [patch.file for patch in manifest.patch]
    assert files == ["0001-add-the-dot.patch", "0002-round-the-dot.patch"]
    assert manifest.patch[0].drop_when == old.patch[0].drop_when
    assert "0002-move-values.patch" in done.removed
    assert done.steps[1].evidence.startswith("content: ")
    for title in (TITLES[0], TITLES[2]):
        assert title in done.difference
    assert "range-diff" not in done.difference
    # What is recorded is what is there: tree, outcomes, and other releases.
    apply_own(lab.toml, lab.build.with_name("b2"), None, force=False)
    found = check(manifest, lab.build, said)
    assert found.good
    cells = {c.onto: [s.state for s in c.steps] for c in found.columns}
    assert cells["v0.33.0"] == ["clean", "clean"]
    assert set(cells["v0.31.0"] + cells["v0.32.0"]) <= {"clean", "moved", "adapted"}
    # Nothing is committed: a person reviews it.
    assert git(lab.project, "status", "--porcelain") != ""


def test_apply_and_export_are_the_identity_on_the_new_pin(lab: Lab, said) -> None:
    repin(lab.toml, lab.build, "0.33.0", said)
    before = contents(lab.patches)
    build = lab.build.with_name("b2")
    outcome = apply_own(lab.toml, build, None, force=False)
    done = export(lab.toml, build, None, prune=False)
    assert (done.written, done.removed) == ((), ())
    assert contents(lab.patches) == before
    again = apply_own(lab.toml, lab.build.with_name("b3"), None, force=False)
    assert again.tree == outcome.tree == load_manifest(lab.toml).series.tree


def test_there_and_back_keeps_the_old_series(lab: Lab, said) -> None:
    """The old pin's result, adaptations included, is still what lands there."""
    before = {
        column.onto: column.tree
        for column in check(lab.manifest, lab.build, said, compare=False).columns
    }
    repin(lab.toml, lab.build, "0.33.0", said)
    after = {c.onto: c.tree for c in check(lab.manifest, lab.build, said).columns}
    assert after["v0.33.0"] == before["v0.33.0"]
    # 0002 went with the pin, and nothing else differs on the older ones.
    for tag in ("v0.31.0", "v0.32.0"):
        store = lab.build / "releases.git"
        assert after[tag] != before[tag]
        assert store.exists()


def test_all_40_digits_from_a_clone(lab: Lab, said) -> None:
    clone = lab.clone()
    done = repin(lab.toml, lab.build, "v0.33.0", said, clone=clone)
    full = git(clone, "rev-parse", "v0.33.0^{commit}")
    assert done.commit == full
    assert load_manifest(lab.toml).pin.commit == full


def test_by_commit(lab: Lab, said) -> None:
    full = git(lab.upstream, "rev-parse", "v0.33.0^{commit}")
    assert repin(lab.toml, lab.build, full, said).commit == full


def test_what_is_refused_leaves_patches_alone(lab: Lab, said) -> None:
    before = contents(lab.patches)
    with pytest.raises(UsageError, match="is the pin already"):
        repin(lab.toml, lab.build, "0.32.0", said)
    with pytest.raises(UsageError, match="neither a recorded release"):
        repin(lab.toml, lab.build, "1" * 40, said)
    lab.release("0.34.0", CLASH)
    with pytest.raises(ConflictError, match=r"does not land on v0\.34\.0") as caught:
        repin(lab.toml, lab.build, "0.34.0", said)
    assert "apply.py apply --onto v0.34.0" in caught.value.hint
    git(lab.project, "reset", "-q", "--hard", "HEAD~1")
    lab.toml.write_text(lab.toml.read_text() + "# edited\n")
    with pytest.raises(RepinError, match="uncommitted"):
        repin(lab.toml, lab.build, "0.33.0", said)
    git(lab.project, "checkout", "-q", ".")
    assert contents(lab.patches) == before


def test_a_clone_with_another_tag(lab: Lab, said) -> None:
    clone = lab.clone()
    git(clone, "tag", "-f", "v0.33.0", "v0.32.0")
    with pytest.raises(RepinError, match=r"has no v0\.33\.0 at"):
        repin(lab.toml, lab.build, "0.33.0", said, clone=clone)


def test_the_old_tree_is_put_aside(lab: Lab, said) -> None:
    own = lab.own()
    repin(lab.toml, lab.build, "0.33.0", said)
    outcome = renew.renew(lab.toml, lab.build, "v0.32.0")
    assert outcome.where == lab.build / "vllm"
    old = lab.build / "vllm-v0.32.0"
    assert subjects(old, "v0.32.0..rocm-series") == TITLES
    assert own.worktree == lab.build / "vllm"
    assert subjects(lab.build / "vllm", "v0.33.0..rocm-series") == TITLES[::2]


def test_work_in_the_old_tree_is_not_put_aside(lab: Lab, said) -> None:
    own = lab.own()
    repin(lab.toml, lab.build, "0.33.0", said)
    assert own.worktree is not None
    (own.worktree / "vllm/core.py").write_text("edited\n")
    with pytest.raises(SeriesError, match="nowhere else"):
        renew.renew(lab.toml, lab.build, "v0.32.0")
    assert (own.worktree / "vllm/core.py").read_text() == "edited\n"


def test_the_text_around_the_tables_stays(lab: Lab) -> None:
    manifest = lab.manifest
    text = "# On top.\n" + lab.toml.read_text().replace(
        "[series]", "# Before series.\n[series]"
    )
    new = repinned_text(text, manifest, manifest.release[1])
    assert new.startswith("# On top.\n[pin]\n")
    assert new.count("[[release]]") == 2
    assert new[new.index("[[change_set]]") :] == text[text.index("[[change_set]]") :]
    again = manifest.model_copy(
        update={
            "pin": manifest.release[1],
            "release": [manifest.release[0], manifest.pin],
        }
    )
    back = repinned_text(new, again, manifest.pin)
    assert load_from(lab, back) == manifest


def load_from(lab: Lab, text: str):
    """A series.toml of that text."""
    lab.toml.write_text(text)
    return lab.manifest


def test_a_layout_that_cannot_be_updated(lab: Lab) -> None:
    manifest = lab.manifest
    text = lab.toml.read_text()
    inline = text.replace("[[release]]", "[[release]]\nextra = 1\n", 1)
    with pytest.raises(ManifestError, match="cannot be updated"):
        repinned_text(inline, manifest, manifest.release[1])


def test_by_way_of_a_waiting_rebase(lab: Lab, said) -> None:
    """A rebase that waits belongs to the old pin, and says so."""
    lab.release("0.34.0", both(CLASH, add("x", "x\n")))
    begin(lab, "0.34.0", said)
    repin(lab.toml, lab.build, "0.33.0", said)
    with pytest.raises(SeriesError, match="patches/ has changed"):
        resume(lab, said)
    resuming.abort(lab.build, None)


@pytest.mark.parametrize("name", ["onto", "expected.toml", "0002-round-the-dot.patch"])
def test_a_disk_that_is_full_leaves_everything(
    lab: Lab, said, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = contents(lab.patches)

    def full(function):
        def wrapped(source, target, *words, **named):
            there = Path(target)
            if lab.patches in there.parents and name in there.parts:
                raise OSError(errno.ENOSPC, "No space left on device", str(there))
            return function(source, target, *words, **named)

        return wrapped

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy", full(shutil.copy))
        patch.setattr(shutil, "copytree", full(shutil.copytree))
        write = Path.write_bytes

        def write_bytes(path: Path, data: bytes) -> int:
            return full(lambda data, path: write(path, data))(data, path)

        patch.setattr(Path, "write_bytes", write_bytes)
        with pytest.raises(SeriesError, match="No space left") as caught:
            repin(lab.toml, lab.build, "0.33.0", said)
    assert str(lab.patches) in str(caught.value)
    assert "room" in caught.value.hint
    assert contents(lab.patches) == before
    repin(lab.toml, lab.build, "0.33.0", said)
    assert load_manifest(lab.toml).pin.tag == "v0.33.0"
    assert not list(lab.patches.glob(".*"))
