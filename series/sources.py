# SPDX-License-Identifier: Apache-2.0
"""Both sides of a rebase: the series on its pin, and the commit that it goes onto."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from .adapt import folder_for
from .carry import LANDED, Carrier, Source
from .errors import SeriesError, UsageError
from .evidence import History, require_probes
from .git import Repository
from .mail import ABSENT, read_mail
from .manifest import Manifest, Pin
from .releases import (
    bring,
    known_releases,
    release_named,
    release_store,
    require_release,
)
from .scratch import Scratch, scratch_over
from .stack import build_stack
from .target import Say, complete, find_base, require_sha1
from .verify import blob_ids, first_images, require_base


@dataclass(frozen=True)
class Onto:
    """The commit that the series goes onto.

    Args:
        name: As it was asked for: a release (v0.33.0) or a revision.
        commit: Its id.
    """

    name: str
    commit: str


@dataclass(frozen=True)
class Rebase:
    """A series and a place for it, in a scratch repository.

    Args:
        repo: The repository that holds both sides.
        scratch: Where commits are built.
        base: The pinned commit.
        onto: Where the series goes.
        sources: The patches on the pin, in order.
        carrier: What carries them.
    """

    repo: Repository
    scratch: Scratch
    base: str
    onto: Onto
    sources: list[Source]
    carrier: Carrier


def find_onto(
    repo: Repository, manifest: Manifest, name: str, build: Path, say: Say, *, own: bool
) -> Onto:
    """The commit of a release or revision, brought into build/vllm where it is ours.

    Args:
        own: The repository is build/vllm, which takes releases only.

    Raises:
        SeriesError: The name is neither a release nor a revision of the clone.
    """
    if own:
        pin = require_release(manifest, name)
        store = release_store(build, [pin], say)
        return Onto(pin.tag, bring(store, pin, repo))
    known = release_named(manifest, name)
    if known and (commit := repo.resolve(f"refs/tags/{known.tag}^{{commit}}")):
        return Onto(known.tag, commit)
    if commit := repo.resolve(f"{name}^{{commit}}"):
        return Onto(name, commit)
    where = repo.worktree or repo.gitdir
    if known:
        raise SeriesError(
            f"{where} has no {known.tag}.",
            f"With a network: git -C '{where}' fetch origin tag {known.tag}",
        )
    raise UsageError(
        f"{name} is no revision of {where}, and no release of {manifest.path.name}.",
        "Name one of them; `git fetch` first where it is new.",
    )


def release_in(store: Repository, pin: Pin) -> Onto:
    """A release of build/releases.git."""
    return Onto(pin.tag, store.line("rev-parse", f"refs/tags/{pin.tag}^{{commit}}"))


@contextmanager
def rebase_over(
    repo: Repository,
    manifest: Manifest,
    onto: Onto,
    say: Say,
    *,
    anew: bool = False,
    objects: Repository | None = None,
) -> Iterator[Rebase]:
    """Build the series on its pin in a scratch repository, ready to be carried.

    Args:
        repo: The repository with the pin, the new base and their history.
        anew: Leave recorded adaptations out.
        objects: Where commits of an earlier run lie, if not in repo.

    Raises:
        SeriesError: The pin or a patch is not what it must be.
    """
    require_sha1(repo)
    with scratch_over(objects or repo) as scratch:
        mails = [read_mail(scratch, path) for path in manifest.files]
        images = first_images(mails)
        touched = [path for path, (pre, _) in images.items() if pre != ABSENT]
        base = find_base(repo, manifest, touched, say).commit
        stone = _stone(repo, manifest, onto)
        # A shallow clone has nothing below these.
        ends = {base, onto.commit, stone.commit if stone else base}
        (scratch.gitdir / "shallow").write_text("".join(f"{o}\n" for o in sorted(ends)))
        require_base(scratch, base, mails)
        needed = set(blob_ids(scratch, base, list(images)).values())
        complete(repo, scratch.missing(sorted(needed)), say)

        def need(oids: list[str]) -> None:
            complete(repo, scratch.missing(oids), say)

        require_probes(scratch, base, manifest, need)
        tips = build_stack(scratch, base, mails)
        sources = [
            Source(patch, mail, before, commit)
            for patch, mail, before, commit in zip(
                manifest.patch, mails, [base, *tips], tips, strict=False
            )
        ]
        history = History(repo, base, onto.commit, say, scratch)
        if stone and not anew:
            there = replace(history, onto=stone.commit)
            folder = folder_for(manifest, stone.name)
            carrier = Carrier(scratch, stone.commit, folder, there, say)
            sources = [_stepped(carrier, source, stone) for source in sources]
        folder = folder_for(manifest, onto.name)
        carrier = Carrier(scratch, onto.commit, folder, history, say, anew)
        yield Rebase(repo, scratch, base, onto, sources, carrier)


def _stone(repo: Repository, manifest: Manifest, onto: Onto) -> Onto | None:
    """The newest release between the pin and a later revision, to rebase by way of.

    What was adapted to that release has less way to go from there than from the pin.
    """
    if release_named(manifest, onto.name):
        return None
    when = int(repo.line("show", "-s", "--format=%ct", onto.commit))
    for pin in reversed(known_releases(manifest)):
        if manifest.pin.date < pin.date and pin.date.timestamp() <= when:
            commit = repo.resolve(f"refs/tags/{pin.tag}^{{commit}}")
            if commit and commit != onto.commit:
                return Onto(pin.tag, commit)
    return None


def _stepped(carrier: Carrier, source: Source, stone: Onto) -> Source:
    """A patch as it lies on the stepping stone, or what became of it there."""
    before = carrier.tip
    step = carrier.carry(source)
    if step.state in LANDED:
        via = f"{stone.name} ({step.state})"
        return replace(source, before=before, commit=step.commit, via=via)
    if step.state in ("merged", "empty"):
        evidence = f"{step.evidence} (at {stone.name})"
        return replace(source, settled=replace(step, evidence=evidence))
    return source


def digest_series(manifest: Manifest) -> str:
    """What tells whether patches/ has changed since a rebase began."""
    digest = hashlib.sha256(f"{manifest.pin.tag}\0{manifest.pin.commit}".encode())
    for path in manifest.files:
        data = path.read_bytes()
        digest.update(f"\0{path.name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
