# SPDX-License-Identifier: Apache-2.0
"""The pin moves to another release: patches, series.toml and outcomes in one change."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import health
from .canonical import write_patches
from .carry import Step
from .carryover import carry_over
from .check import check
from .checkout import edited
from .errors import ConflictError, DiskError, SeriesError, UsageError
from .expected import EXPECTED, record_expected
from .files import replace_files
from .git import Repository, require_git
from .locks import locked, scratch_folder
from .manifest import Manifest, Pin, load_manifest
from .pinning import repinned_text
from .releases import known_releases, release_named, release_store
from .sources import Rebase, rebase_over, release_in
from .stack import read_commits
from .tables import match_entries, new_text
from .target import Say

_TEMPORARY = ".repin-"
_BESIDE = ("onto", EXPECTED)


class RepinError(SeriesError):
    """The pin cannot move there; patches/ is untouched."""


@dataclass(frozen=True)
class Repinned:
    """What moving the pin changed.

    Args:
        old: The tag of the old pin.
        new: The tag of the new one.
        steps: What became of each patch.
        difference: The range-diff between the old series and the new one.
        written: Files of patches/ with other bytes.
        removed: Files that are gone.
        adapted: Adaptations that were written, relative to patches/.
        commit: The commit of the new pin, as it is recorded.
    """

    old: str
    new: str
    steps: tuple[Step, ...]
    difference: str
    written: tuple[str, ...]
    removed: tuple[str, ...]
    adapted: tuple[str, ...]
    commit: str


def find_pin(manifest: Manifest, name: str, clone: Path | None) -> Pin:
    """The recorded release of a name or commit, its commit in full where it is known.

    Raises:
        SeriesError: No recorded release has that name or commit.
    """
    found = release_named(manifest, name) or _by_commit(manifest, name)
    if found is None:
        names = ", ".join(pin.release for pin in known_releases(manifest))
        raise UsageError(
            f"{name} is neither a recorded release nor the commit of one ({names}): "
            "the pinned tree is made from a source distribution.",
            "Add a [[release]] table for it to series.toml, or use `apply --onto`.",
        )
    if clone is not None:
        repo = Repository.find(clone)
        commit = repo.resolve(f"refs/tags/{found.tag}^{{commit}}")
        if commit is None or not commit.startswith(found.commit):
            raise RepinError(
                f"{clone} has no {found.tag} at {found.commit}.",
                f"Fetch it: git -C '{clone}' fetch origin tag {found.tag}",
            )
        found = found.model_copy(update={"commit": commit})
    return found


def _by_commit(manifest: Manifest, name: str) -> Pin | None:
    if len(name) < 9:
        return None
    for pin in known_releases(manifest):
        if pin.commit.startswith(name) or name.startswith(pin.commit):
            longer = max(pin.commit, name, key=len)
            return pin.model_copy(update={"commit": longer})
    return None


def repin(
    series: Path, build: Path, name: str, say: Say, *, clone: Path | None = None
) -> Repinned:
    """Move the pin to another release.

    Args:
        series: series.toml.
        build: The folder of the releases.
        name: The release, or the commit of one.
        clone: A clone, to record the 40 digits of the commit.

    Raises:
        ConflictError: A patch does not land there yet.
        SeriesError: It could not be done; patches/ is untouched.
    """
    require_git()
    manifest = load_manifest(series)
    pin = find_pin(manifest, name, clone)
    if pin.tag == manifest.pin.tag and pin.commit == manifest.pin.commit:
        raise UsageError(f"{pin.tag} is the pin already.", "Name another release.")
    with (
        locked(manifest.folder, lambda: say("Another run writes patches/: waiting.")),
        scratch_folder() as aside,
    ):
        _require_committed(manifest)
        store = release_store(build, known_releases(manifest), say)
        onto = release_in(store, pin)
        with rebase_over(store, manifest, onto, say) as rebase:
            steps = [rebase.carrier.carry(source) for source in rebase.sources]
            _require_landed(rebase, manifest, steps)
            difference = _range_diff(rebase)
            text, new = _files(rebase, manifest, pin, steps)
        # Everything is made in a copy first, and looked at there.
        there = aside / "patches"
        shutil.copytree(manifest.folder, there)
        copy = load_manifest(there / series.name)
        replace_files(copy, new, text)
        made = load_manifest(there / series.name)
        adapted = carry_over(store, manifest, made, pin, say)
        matrix = check(made, build, say, compare=False)
        record_expected(made, {c.onto: list(c.steps) for c in matrix.columns})
        with _copied(there, manifest.folder) as ready:
            written, removed = replace_files(manifest, new, text)
            _put(ready, manifest.folder)
    return Repinned(
        manifest.pin.tag,
        pin.tag,
        tuple(steps),
        difference,
        written,
        removed,
        tuple(adapted),
        pin.commit,
    )


def _require_committed(manifest: Manifest) -> None:
    """Refuse edits in patches/ that the change would be mixed with."""
    try:
        repo = Repository.find(manifest.folder)
    except DiskError:
        raise
    except SeriesError:
        return
    if repo.worktree is None:
        return
    where = manifest.folder.resolve().relative_to(repo.worktree.resolve())
    files = [
        path for path in edited(repo, own=False) if Path(path).is_relative_to(where)
    ]
    if files:
        raise RepinError(
            f"{files[0]} has uncommitted changes.",
            "Commit them first: moving the pin is a change of its own.",
        )


def _require_landed(rebase: Rebase, manifest: Manifest, steps: list[Step]) -> None:
    onto = rebase.onto
    if stuck := [step for step in steps if step.state == "conflict"]:
        first = stuck[0].clashes[0]
        raise ConflictError(
            f"{stuck[0].file} does not land on {onto.name}: {first.path}, "
            f"{first.reason}.",
            f"Adapt it first: apply.py apply --onto {onto.name}",
        )
    scratch, tip = rebase.scratch, rebase.carrier.tip
    faults = [
        *health.syntax_faults(scratch, onto.commit, tip),
        *health.symbol_faults(scratch, manifest, steps, tip, rebase.carrier.need),
        *health.round_trip_faults(scratch, onto.commit, tip),
    ]
    if faults:
        raise RepinError(f"The series is broken on {onto.name}: {'; '.join(faults)}.")


def _range_diff(rebase: Rebase) -> str:
    """How each patch differs between the old pin and the new one, as git tells it."""
    if not rebase.sources:
        return ""
    old = f"{rebase.base}..{rebase.sources[-1].commit}"
    new = f"{rebase.onto.commit}..{rebase.carrier.tip}"
    out = rebase.scratch.git("range-diff", "--no-color", "--no-notes", old, new)
    return out.decode("utf-8", "replace")


def _files(
    rebase: Rebase, manifest: Manifest, pin: Pin, steps: list[Step]
) -> tuple[str, dict[str, bytes]]:
    """The new series.toml, and the patches by file name."""
    scratch, base, tip = rebase.scratch, rebase.onto.commit, rebase.carrier.tip
    commits = read_commits(scratch, base, tip)
    files = write_patches(scratch, base, tip)
    subjects = [commit.subject for commit in commits]
    names = [file.name for file in files]
    entries, _ = match_entries(manifest.patch, subjects, names)
    text = repinned_text(manifest.path.read_text("utf-8"), manifest, pin)
    text = new_text(text, manifest, entries, scratch.tree_of(tip))
    data = [file.read_bytes() for file in files]
    return text, {e.file: d for e, d in zip(entries, data, strict=True)}


@contextmanager
def _copied(made: Path, folder: Path) -> Iterator[Path]:
    """Copy what is not of the patches themselves beside its place, on the same disk.

    Raises:
        RepinError: It cannot be copied, or cannot be put there.
    """
    for left in folder.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(left, ignore_errors=True)
    aside: Path | None = None
    try:
        aside = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder))
        for name in _BESIDE:
            if (made / name).is_dir():
                shutil.copytree(made / name, aside / name)
            elif (made / name).exists():
                shutil.copy(made / name, aside / name)
        yield aside
    except (OSError, shutil.Error) as error:
        # copytree gathers what failed; the first tells enough.
        cause = error.args[0][0][2] if isinstance(error, shutil.Error) else None
        reason = cause or getattr(error, "strerror", None) or error
        raise RepinError(
            f"{folder} cannot be written: {reason}.",
            "Make room or make it writable, and move the pin again; git restores "
            "what has changed there (git checkout -- patches).",
        ) from error
    finally:
        if aside:
            shutil.rmtree(aside, ignore_errors=True)


def _put(ready: Path, folder: Path) -> None:
    """Rename the copies into place; that needs no room."""
    for name in _BESIDE:
        if (folder / name).is_dir():
            (folder / name).rename(ready / f"old-{name}")
        if (ready / name).exists():
            (ready / name).rename(folder / name)
