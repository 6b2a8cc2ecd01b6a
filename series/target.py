# SPDX-License-Identifier: Apache-2.0
"""The pinned commit in a repository: found, or fetched from its own remotes."""

from collections.abc import Callable
from dataclasses import dataclass

from .errors import DiskError, SeriesError
from .git import GitError, Repository
from .manifest import Manifest, Pin

Say = Callable[[str], None]
_FETCH = (
    "fetch",
    "-q",
    "--no-tags",
    "--no-prune",
    "--no-write-fetch-head",
    "--no-auto-maintenance",
    "--no-recurse-submodules",
    "--refmap=",
)


class TargetError(SeriesError):
    """The repository cannot take the series: it says why."""


@dataclass(frozen=True)
class Base:
    """The commit that the series goes on.

    Args:
        commit: Its full id.
        fetched: The remote that it was fetched from, empty when it was there.
    """

    commit: str
    fetched: str = ""


def require_sha1(repo: Repository) -> None:
    """Refuse a repository whose object ids cannot be those of the patches."""
    if repo.line("rev-parse", "--show-object-format") != "sha1":
        raise TargetError(
            f"{repo.common} is no sha1 repository, so it cannot be a clone of vLLM.",
            "Name a clone of vLLM.",
        )


def find_base(
    repo: Repository, manifest: Manifest, touched: list[str], say: Say
) -> Base:
    """The pinned commit, fetched from the repository's own remotes if it is missing.

    Args:
        touched: Paths that the pinned tree has, to tell vLLM from another project.
        say: Called with a line before something that takes time.

    Raises:
        TargetError: It is no clone of vLLM, or the commit cannot be had.
    """
    if commit := local_base(repo, manifest.pin, touched):
        return Base(commit)
    _require_vllm(repo, touched)
    remotes = _remotes(repo)
    failed: list[str] = []
    for remote in remotes:
        say(f"The pinned {manifest.pin.tag} is not here: fetching it from {remote}.")
        try:
            _fetch(repo, manifest.pin, remote)
        except DiskError:
            raise
        except SeriesError as error:
            failed.append(f"{remote}: {error.what}")
            continue
        if commit := local_commit(repo, manifest.pin.commit):
            return Base(commit, remote)
        failed.append(f"{remote}: it has another {manifest.pin.tag}.")
    where = repo.worktree or repo.gitdir
    remote = remotes[0] if remotes else "URL-OF-VLLM"
    reasons = " ".join(failed) or "the clone has no remote to fetch it from."
    raise TargetError(
        f"The pinned commit {manifest.pin.commit} ({manifest.pin.tag}) is not in "
        f"{where}, and could not be fetched: {reasons}",
        f"With a network: git -C '{where}' fetch {remote} tag {manifest.pin.tag}",
    )


def local_base(repo: Repository, pin: Pin, touched: list[str]) -> str | None:
    """The pinned commit if the repository has it, by its id and by its tag.

    A tag on a commit with the tree of the source distribution is the pin as well.

    Raises:
        TargetError: The tag is on another commit than the pinned one.
    """
    by_id = local_commit(repo, pin.commit)
    by_tag = repo.resolve(f"refs/tags/{pin.tag}^{{commit}}")
    if by_tag is None or by_tag == by_id:
        return by_id
    # Read off the commit: a treeless clone does not have the tree itself yet.
    tree = repo.ask("log", "-1", "--no-show-signature", "--format=%T", by_tag)
    if by_tag.startswith(pin.commit) or tree == pin.tree:
        return by_tag
    if by_id is None:
        _require_vllm(repo, touched)
    raise TargetError(
        f"The tag {pin.tag} in {repo.worktree or repo.gitdir} is on {by_tag[:12]}, "
        f"not on the pinned commit {pin.commit}.",
        "Get upstream's tag, or remove the one that is there.",
    )


def local_commit(repo: Repository, prefix: str) -> str | None:
    """The one commit whose id starts with prefix, None when there is none.

    Raises:
        TargetError: Several commits do.
    """
    found = repo.line("rev-parse", f"--disambiguate={prefix}").split()
    commits = [
        oid for oid in found if (repo.ask("cat-file", "-t", oid) or "") == "commit"
    ]
    if len(commits) > 1:
        raise TargetError(
            f"{len(commits)} commits start with {prefix}: {', '.join(commits)}.",
            "Write the full id of the pinned commit into series.toml.",
        )
    return commits[0] if commits else None


def complete(repo: Repository, oids: list[str], say: Say) -> None:
    """Fetch blobs that a partial clone has left out, all at once.

    Raises:
        TargetError: They are missing and their remote cannot be reached.
    """
    if not oids:
        return
    remotes = _promisors(repo)
    if not remotes:
        raise TargetError(
            f"{len(oids)} objects of the pinned commit are missing from "
            f"{repo.common}: {oids[0]} is one.",
            "The clone is damaged: `git fsck` tells more.",
        )
    say(f"Fetching {len(oids)} blobs that this partial clone has left out.")
    options = ["-c", "fetch.negotiationAlgorithm=noop"]
    try:
        repo.git(*options, *_FETCH, "--filter=blob:none", remotes[0], *oids, user=True)
    except GitError as error:
        raise TargetError(
            f"This is a partial clone without {len(oids)} of the blobs that the "
            f"patches touch, and its remote {remotes[0]} did not give them: "
            f"{error.said}",
            "Run it again with a network; nothing was changed.",
        ) from error


def complete_trees(repo: Repository, commit: str, say: Say) -> None:
    """Fetch the trees of a commit that a treeless clone has left out."""
    try:
        repo.git("ls-tree", "-r", "--name-only", commit)
        return
    except GitError as error:
        if not _promisors(repo):
            raise
        reason = error
    say("Fetching the trees that this partial clone has left out.")
    try:
        repo.git("ls-tree", "-r", "--name-only", commit, user=True)
    except GitError as error:
        raise TargetError(
            f"This is a partial clone without the trees of {commit[:12]}, and its "
            f"remote did not give them: {error.said}",
            "Run it again with a network; nothing was changed.",
        ) from reason


def _require_vllm(repo: Repository, touched: list[str]) -> None:
    """Refuse a repository that has none of the files that the patches change."""
    heads = ["HEAD", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"]
    known = [head for head in heads if repo.resolve(f"{head}^{{tree}}")]
    if not known or not touched:
        return
    if any(repo.resolve(f"{head}:{path}") for head in known for path in touched):
        return
    raise TargetError(
        f"{repo.worktree or repo.gitdir} is not vLLM: it has neither the pinned "
        f"commit nor {touched[0]}.",
        "Name a clone of vLLM, or leave VLLM out to get the pinned tree.",
    )


def _fetch(repo: Repository, pin: Pin, remote: str) -> None:
    """Bring the pinned commit here by its id, or by its tag; no ref is written."""
    tag = f"refs/tags/{pin.tag}"
    out = repo.git("ls-remote", "-q", remote, tag, f"{tag}^{{}}", user=True).decode()
    # The peeled entry of an annotated tag comes last.
    ids = [line.split("\t")[0] for line in out.splitlines()]
    tagged = ids[-1] if ids and ids[-1].startswith(pin.commit) else None
    want = tagged or (pin.commit if len(pin.commit) == 40 else None)
    if want is None:
        raise TargetError(
            f"it has no {pin.tag}." if not ids else f"its {pin.tag} is {ids[-1][:12]}."
        )
    shallow = repo.line("rev-parse", "--is-shallow-repository") == "true"
    depth = ["--depth=1"] if shallow else []
    try:
        repo.git(*_FETCH, *depth, remote, want, user=True)
    except GitError:
        # Some servers refuse ids; the tag they do give.
        if tagged is None:
            raise
        repo.git(*_FETCH, *depth, remote, tag, user=True)


def _remotes(repo: Repository) -> list[str]:
    names = (repo.ask("remote") or "").split()
    return sorted(names, key=lambda name: (name != "origin", name))


def _promisors(repo: Repository) -> list[str]:
    pattern = r"^remote\..*\.promisor$"
    said = repo.ask("config", "--type=bool", "--get-regexp", pattern) or ""
    rows = [line.rsplit(" ", 1) for line in said.splitlines()]
    on = [key for key, value in rows if value == "true"]
    names = [key.removeprefix("remote.").removesuffix(".promisor") for key in on]
    return sorted(names, key=lambda name: (name != "origin", name))
