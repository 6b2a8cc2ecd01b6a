# SPDX-License-Identifier: Apache-2.0
"""A submission in git: commits signed off, patches with a cover letter, a branch."""

import os
import shutil
from pathlib import Path

from .blobs import entries, read
from .branch import BranchError, recorded_tip
from .checkout import holders
from .disk import require_room
from .errors import SeriesError, of_system
from .git import Repository
from .landing import give_range
from .scratch import Scratch
from .sources import Rebase
from .stack import read_commits
from .submit_text import TEMPLATE, Facts, body_of, cover_of
from .target import complete


def signed_off(rebase: Rebase, who: tuple[str, str]) -> str:
    """Commit the carried patches again, signed off; their trailers are kept.

    Args:
        who: Name and address of the submitter, who becomes the author where the
            series itself is named as one.

    Returns:
        The last commit.
    """
    scratch, parent = rebase.scratch, rebase.onto.commit
    line = f"Signed-off-by: {who[0]} <{who[1]}>"
    for commit in read_commits(scratch, rebase.onto.commit, rebase.carrier.tip):
        flags = ["--if-exists", "addIfDifferent", "--trailer", line]
        message = commit.message.encode()
        signed = scratch.git("interpret-trailers", *flags, stdin=message)
        author = who if _is_placeholder(commit.author[1]) else commit.author
        env = {
            "GIT_AUTHOR_NAME": author[0],
            "GIT_AUTHOR_EMAIL": author[1],
            "GIT_AUTHOR_DATE": commit.date,
            "GIT_COMMITTER_NAME": who[0],
            "GIT_COMMITTER_EMAIL": who[1],
            "GIT_COMMITTER_DATE": commit.date,
        }
        words = ["commit-tree", commit.tree, "-p", parent]
        parent = scratch.git(*words, stdin=signed, env=env).decode().strip()
    return parent


def _is_placeholder(email: str) -> bool:
    """Whether an author is the series' own, which is no person."""
    return email.endswith((".invalid", "@localhost"))


def write_out(
    rebase: Rebase, tip: str, facts: Facts, folder: Path, who: tuple[str, str]
) -> Path:
    """Write body, cover letter and patches; the folder is replaced as a whole.

    Returns:
        The file with the body.

    Raises:
        SeriesError: Upstream's template is missing, or has another shape.
    """
    scratch, base = rebase.scratch, rebase.onto.commit
    entry = entries(scratch, tip, [TEMPLATE]).get(TEMPLATE)
    if entry is None:
        raise SeriesError(f"{facts.base} has no {TEMPLATE}.")
    complete(rebase.repo, scratch.missing([entry.oid]), lambda line: None)
    body = body_of(read(scratch, entry.oid).decode(), facts)
    made = folder.with_name(f".{folder.name}")
    try:
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        (made / "body.md").write_text(body, "utf-8")
        _write_patches(scratch, f"{base}..{tip}", made, who)
        subject, text = cover_of(facts, body)
        [cover] = made.glob("0000-*.patch")
        filled = cover.read_text("utf-8").replace("*** SUBJECT HERE ***", subject)
        cover.write_text(filled.replace("*** BLURB HERE ***", text), "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(made, folder)
    except OSError as error:
        raise of_system(error, folder.parent) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder / "body.md"


def _write_patches(
    scratch: Scratch, spec: str, made: Path, who: tuple[str, str]
) -> None:
    env = {"GIT_COMMITTER_NAME": who[0], "GIT_COMMITTER_EMAIL": who[1]}
    flags = ["-q", "-o", str(made), "--cover-letter", "--full-index", "--binary"]
    flags += ["--no-renames", "--keep-subject", "--no-signature", "--thread=shallow"]
    scratch.git("format-patch", *flags, spec, env=env)
    require_room(made)


def move_to(
    repo: Repository, scratch: Scratch, branch: str, base: str, tip: str
) -> None:
    """The branch goes last; one with somebody's own commits stays."""
    old = repo.resolve(f"refs/heads/{branch}^{{commit}}")
    if old == tip:
        return
    if old and recorded_tip(repo, branch) != old:
        raise BranchError(
            f"The branch {branch} has commits that this tool did not make.",
            f"Rename it: git branch -m {branch} {branch}-mine",
        )
    if held := holders(repo, branch):
        raise BranchError(
            f"The branch {branch} is checked out in {held[0]} and would be moved.",
            f"Leave it first: git -C '{held[0]}' switch --detach",
        )
    give_range(scratch, repo, base, tip)
    lines = [
        f"update refs/heads/{branch} {tip} {old or '0' * 40}",
        f"update refs/series/tip/{branch} {tip}",
    ]
    words = "".join(f"{line}\n" for line in lines).encode()
    repo.git("update-ref", "-m", "apply.py: pr", "--stdin", stdin=words)
