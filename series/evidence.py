# SPDX-License-Identifier: Apache-2.0
"""Whether upstream has a patch: by patch-id, by content, or by series.toml's probe.

A file that is gone says nothing: what a patch adds must be found.
"""

import ast
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from .blobs import entries, images, read
from .errors import DiskError, SeriesError
from .git import GitError, Repository
from .mail import ABSENT, Mail
from .manifest import Manifest, ManifestError, Symbol
from .scratch import Scratch
from .target import Say, complete
from .threeway import FileMerge

Need = Callable[[list[str]], None]
_DIFF = (
    "-p",
    "--full-index",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--diff-algorithm=myers",
)


def _nothing(oids: list[str]) -> None:
    """All blobs are there."""


def probe(repo: Repository, commit: str, symbol: Symbol, need: Need = _nothing) -> str:
    """How a commit shows the probed symbol, empty where it does not.

    Args:
        need: Called with blobs before they are read; a partial clone fetches them.
    """
    entry = entries(repo, commit, [symbol.file]).get(symbol.file)
    if entry is None:
        return ""
    need([entry.oid])
    text = read(repo, entry.oid).decode("utf-8", "replace")
    if not holds_symbol(text, symbol):
        return ""
    verb = "defines" if _is_name(symbol) else "holds"
    return f"{symbol.file} {verb} {symbol.symbol} (drop_when)"


def holds_symbol(text: str, symbol: Symbol) -> bool:
    """Whether a file defines a name; imports, calls and comments do not count.

    What is no Python name, and files that are no Python, are searched as text.
    """
    if not _is_name(symbol):
        return symbol.symbol in text
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return any(symbol.symbol in _defined(node) for node in ast.walk(tree))


def _is_name(symbol: Symbol) -> bool:
    return symbol.symbol.isidentifier() and symbol.file.endswith(".py")


def _defined(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def require_probes(
    repo: Repository, pin: str, manifest: Manifest, need: Need = _nothing
) -> None:
    """Refuse a probe that the pinned tree already answers: it would drop the patch.

    Raises:
        ManifestError: Naming the patch.
    """
    for patch in manifest.patch:
        if patch.drop_when and (said := probe(repo, pin, patch.drop_when, need)):
            raise ManifestError(
                f"{manifest.path.name}: {patch.file}: the pinned tree already "
                f"answers its drop_when: {said}.",
                "Name a symbol that upstream has only once it has the change.",
            )


def content(files: list[FileMerge], repo: Repository) -> str:
    """How a tree shows that it has all of a patch, empty where it does not.

    Every hunk must be there, and at least one that adds something: a tree that merely
    lacks what the patch removes is no evidence. Where upstream has changed the lines
    next to it since, the new text of each hunk must be in the file once, and the old
    text nowhere, so that a look-alike is not taken for it.
    """
    for file in files:
        if not (_reverses(repo, file) if file.clashes else file.nothing_left):
            return ""
    adds = any(_adds(repo, file) for file in files)
    return "all of its changes are there already" if adds else ""


def _reverses(repo: Repository, file: FileMerge) -> bool:
    base, theirs, ours = file.sides
    changes = images(repo, base.oid, theirs.oid)
    text = read(repo, ours.oid)
    counts = [(text.count(old), text.count(new)) for old, new in changes]
    return bool(counts) and all(count == (0, 1) for count in counts)


def _adds(repo: Repository, file: FileMerge) -> bool:
    base, theirs, ours = file.sides
    if not ours.there or not theirs.there:
        return False
    if not base.there:
        return True
    out = read(repo, base.oid).splitlines()
    return bool(set(read(repo, theirs.oid).splitlines()) - set(out))


@dataclass
class History:
    """Upstream's commits since the pin, as far as the repository has them.

    Args:
        repo: The repository, with its own idea of history.
        pin: The pinned commit.
        onto: The commit that the series goes onto.
        say: Called with a line before something that takes time.
        scratch: A repository over its objects, to see which are missing.
    """

    repo: Repository
    pin: str
    onto: str
    say: Say
    scratch: Scratch
    missing: str = ""
    _fork: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._fork = self.repo.ask("merge-base", self.pin, self.onto)
        if self._fork is None:
            self.missing = "no common history here: patch-ids were not compared"

    def same_patch(self, mail: Mail) -> str:
        """Which upstream commit has the patch-id of a patch; empty for none."""
        if self._fork is None:
            return ""
        try:
            wanted = _patch_id(self.repo, mail.diff)
            for commit, parent, needed in self._candidates(mail):
                complete(self.repo, self.scratch.missing(needed), self.say)
                diff = self.scratch.git("diff-tree", *_DIFF, parent, commit)
                if _patch_id(self.repo, diff) == wanted:
                    return f"commit {commit[:12]} has the same patch-id"
        except DiskError:
            raise
        except SeriesError as error:
            self.missing = f"patch-ids were not compared: {error.what}"
        return ""

    def _candidates(self, mail: Mail) -> list[tuple[str, str, list[str]]]:
        """Commits that touch the very files of a patch, their parents and blobs."""
        flags = ["--raw", "--no-abbrev", "--no-renames", "--full-diff", "-z"]
        spec = f"{self._fork}..{self.onto}"
        words = ["log", *flags, "--no-merges", "--format=%x01%H %P", spec, "--"]
        try:
            out = os.fsdecode(self.repo.git(*words, *mail.paths))
        except GitError as error:
            raise SeriesError(error.said) from error
        found = []
        for block in out.split("\x01")[1:]:
            commits, *parts = block.replace("\n", "\0").split("\0")
            commit, *parents = commits.split()
            parts = [part for part in parts if part]
            raws, paths = parts[::2], parts[1::2]
            if parents and set(paths) == set(mail.paths):
                ids = {oid for raw in raws for oid in raw.split(" ")[2:4]}
                found.append((commit, parents[0], sorted(ids - {ABSENT})))
        return found


def _patch_id(repo: Repository, diff: bytes) -> str:
    out = repo.git("patch-id", "--stable", stdin=diff)
    return out.decode().partition(" ")[0]
