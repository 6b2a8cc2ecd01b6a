# SPDX-License-Identifier: Apache-2.0
"""Whether what applied holds: it compiles, has its symbols, survives an export."""

import os
import warnings
from collections.abc import Callable
from pathlib import PurePosixPath

from .blobs import changed_paths, entries, read
from .canonical import lost_on_the_way, write_patches
from .carry import LANDED, Step
from .errors import DiskError, SeriesError
from .git import Repository
from .manifest import Manifest
from .scratch import Scratch
from .stack import read_commits
from .verify import count_symbol


def changed_python(repo: Repository, base: str, tip: str) -> list[str]:
    """The Python files that the series changes and leaves there."""
    paths = [path for path in changed_paths(repo, base, tip) if path.endswith(".py")]
    return sorted(entries(repo, tip, paths))


def syntax_faults(repo: Repository, base: str, tip: str) -> list[str]:
    """Changed Python files that do not compile, with line and reason."""
    faults = []
    paths = changed_python(repo, base, tip)
    for path, entry in entries(repo, tip, paths).items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                data = read(repo, entry.oid)
                compile(data, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            reason = getattr(error, "msg", str(error))
            faults.append(f"{path}:{line or 1} does not compile: {reason}")
    return faults


def symbol_faults(
    repo: Repository,
    manifest: Manifest,
    steps: list[Step],
    tip: str,
    need: Callable[[list[str]], None],
) -> list[str]:
    """Symbols of landed patches that are not there exactly once.

    Args:
        need: Called with blobs before they are read; a partial clone fetches them.
    """
    landed = {step.file for step in steps if step.state in LANDED}
    faults = []
    for patch in manifest.patch:
        for symbol in patch.symbols if patch.file in landed else []:
            entry = entries(repo, tip, [symbol.file]).get(symbol.file)
            need([entry.oid] if entry else [])
            text = read(repo, entry.oid).decode("utf-8", "replace") if entry else ""
            if (times := count_symbol(text, symbol)) != 1:
                faults.append(
                    f"{patch.file[:4]}: {symbol.symbol} is {times} times in "
                    f"{symbol.file}"
                )
    return faults


def round_trip_faults(scratch: Scratch, base: str, tip: str) -> list[str]:
    """Commits that an export and an apply on the same base would not bring back."""
    commits = read_commits(scratch, base, tip)
    files = write_patches(scratch, base, tip)
    try:
        if len(files) != len(commits):
            return ["an export would leave a commit out"]
        lost = lost_on_the_way(scratch, base, commits, files)
        return [f"{lost.oid[:9]} would not survive an export"] if lost else []
    except DiskError:
        raise
    except SeriesError as error:
        return [f"an export would not apply again: {error.what}"]
    finally:
        for file in files:
            os.unlink(file)


def module_names(paths: list[str]) -> list[str]:
    """The modules of vllm that changed files are, as they are imported."""
    found = []
    for path in paths:
        pure = PurePosixPath(path)
        if pure.parts[0] == "vllm":
            parts = pure.with_suffix("").parts
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found
