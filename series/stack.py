# SPDX-License-Identifier: Apache-2.0
"""Patches become commits: in an index of their own, no work tree, dates as sent."""

import os
from dataclasses import dataclass

from .disk import brief
from .git import GitError
from .mail import Change, Mail, PatchError, tidy
from .scratch import Scratch


@dataclass(frozen=True)
class FileChange(Change):
    """A file of a commit, with its added and removed lines (0 for binaries)."""

    added: int = 0
    removed: int = 0


@dataclass(frozen=True)
class Commit:
    """One commit of the series, as git stores it.

    Args:
        oid: Its id.
        parents: The ids of its parents.
        tree: Its tree id.
        author: Name and address.
        date: The author's date, seconds and zone.
        committer: Name and address.
        message: The message without trailing blanks.
    """

    oid: str
    parents: tuple[str, ...]
    tree: str
    author: tuple[str, str]
    date: str
    committer: tuple[str, str]
    message: str

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]

    @property
    def content(self) -> tuple[str, tuple[str, str], str, str]:
        """What makes two commits the same patch on the same base."""
        return self.tree, self.author, self.date, self.message


def build_stack(scratch: Scratch, base: str, mails: list[Mail]) -> list[str]:
    """Commit each patch on top of the one before, and return the commit ids.

    The ids depend on base and patches alone: the committer is fixed and takes the
    author's date. Each commit must change the very blobs that its patch names.

    Raises:
        PatchError: A patch does not apply, or does something else than it says.
    """
    scratch.git("read-tree", base)
    commits: list[str] = []
    parent, parent_tree = base, scratch.tree_of(base)
    for mail in mails:
        try:
            scratch.git("apply", "--cached", "--whitespace=nowarn", stdin=mail.diff)
        except GitError as error:
            raise PatchError(
                f"{mail.name} does not apply: {brief(error.stderr)}",
                "Restore it from git, or write it anew with `apply.py export`.",
            ) from error
        # Blobs that no patch touches may be absent from a partial clone.
        tree = scratch.line("write-tree", "--missing-ok")
        _require_changes(scratch, mail, parent_tree, tree)
        parent = commit_mail(scratch, mail, parent, tree)
        parent_tree = tree
        commits.append(parent)
    return commits


def commit_mail(scratch: Scratch, mail: Mail, parent: str, tree: str) -> str:
    """Commit a tree with the author, date and message of a patch."""
    env = {
        "GIT_AUTHOR_NAME": mail.author[0],
        "GIT_AUTHOR_EMAIL": mail.author[1],
        "GIT_AUTHOR_DATE": mail.date,
        "GIT_COMMITTER_DATE": mail.date,
    }
    message = mail.message.encode()
    out = scratch.git("commit-tree", tree, "-p", parent, stdin=message, env=env)
    return out.decode().strip()


def _require_changes(scratch: Scratch, mail: Mail, before: str, after: str) -> None:
    said = {change for change in mail.changes if change.pre != change.post}
    done = {
        Change(change.path, change.pre, change.post)
        for change in diff_files(scratch, before, after)
        if change.pre != change.post
    }
    if said != done:
        names = ", ".join(sorted({change.path for change in said ^ done}))
        raise PatchError(
            f"{mail.name} does not lead to the blobs that it names: {names}.",
            "The file was edited by hand: write it anew with `apply.py export`.",
        )


def diff_files(scratch: Scratch, before: str, after: str) -> list[FileChange]:
    """The files that differ between two trees or commits, without renames."""
    flags = ["-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff"]
    out = scratch.git("diff-tree", *flags, "--full-index", before, after)
    parts = [os.fsdecode(part) for part in out.split(b"\0")][:-1]
    ids: dict[str, tuple[str, str]] = {}
    counts: dict[str, tuple[int, int]] = {}
    index = 0
    while index < len(parts):
        if parts[index].startswith(":"):
            fields = parts[index].split(" ")
            ids[parts[index + 1]] = fields[2], fields[3]
            index += 2
        else:
            added, removed, path = parts[index].split("\t", 2)
            counts[path] = int(added.strip("-") or 0), int(removed.strip("-") or 0)
            index += 1
    return [FileChange(path, *ids[path], *counts.get(path, (0, 0))) for path in ids]


def read_commits(scratch: Scratch, base: str, tip: str) -> list[Commit]:
    """The commits from base (left out) to tip, oldest first."""
    fields = ["%H", "%P", "%T", "%an", "%ae", "%ad", "%cn", "%ce", "%B"]
    flags = ["--reverse", "--topo-order", "--date=raw", "--no-show-signature"]
    pretty = "--format=" + "%x00".join(fields) + "%x00"
    out = scratch.git("log", *flags, pretty, f"{base}..{tip}", "--")
    parts = out.decode("utf-8", "surrogateescape").split("\0")[:-1]
    commits = []
    for start in range(0, len(parts), len(fields)):
        oid, parents, tree, *who, message = parts[start : start + len(fields)]
        name, email, date, committer, committer_email = who
        commits.append(
            Commit(
                oid.strip(),
                tuple(parents.split()),
                tree,
                (name, email),
                date,
                (committer, committer_email),
                tidy(message),
            )
        )
    return commits
