# SPDX-License-Identifier: Apache-2.0
"""Random series, random upstream edits, random orders of what a user may do.

After every step the user's refs, index, work tree and settings are what they were, and
the series branch is the old one or a whole new one: never anything between.
"""

import os
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from series import health, onto, resuming
from series.commands import apply_to
from series.errors import SeriesError
from series.git import Repository
from series.manifest import load_manifest
from series.sources import find_onto, rebase_over
from series.state import sessions

from .conftest import FORMAT, commit, git, make_clone, seen_state
from .killing import killed_at
from .upkeep import make_commit

LINES = 12
TOML = """\
[pin]
release = "0.32.0"
tag = "v0.32.0"
commit = "{commit}"
tree = "{tree}"
date = 2026-10-18T00:00:00Z
generated = []

[pin.sdist]
filename = "vllm-0.32.0.tar.gz"
size = 1
sha256 = "{zeros}"

[series]
branch = "rocm-series"
tree = ""

[[change_set]]
name = "all"
title = "All"
upstream = {{ state = "not submitted" }}
"""
PATCH = """
[[patch]]
file = "{file}"
title = "{title}"
purpose = "p"
series = "all"
upstream = {{ state = "not submitted" }}
"""

# One edit: which file, which line, and what becomes of it.
edits = st.lists(
    st.tuples(
        st.sampled_from(["a.txt", "b.txt", "new.txt", "gone.txt"]),
        st.integers(0, LINES - 1),
        st.sampled_from(["one", "two", "", "x\ny"]),
    ),
    min_size=1,
    max_size=3,
)
all_series = st.lists(edits, min_size=1, max_size=3)
all_upstream = st.lists(edits, max_size=2)
actions = st.lists(
    st.tuples(
        st.sampled_from(["begin", "continue", "resolve", "skip", "abort", "apply"]),
        st.sampled_from([0, 0, 4, 9, 16, 28, 40]),
    ),
    min_size=1,
    max_size=5,
)


@dataclass(frozen=True)
class World:
    """An upstream with a later main, a series, and a user's clone."""

    root: Path

    @property
    def toml(self) -> Path:
        return self.root / "patches/series.toml"

    @property
    def build(self) -> Path:
        return self.root / "build"

    @property
    def clone(self) -> Path:
        return self.root / "clone"


def change(root: Path, which: list[tuple[str, int, str]], tag: str) -> None:
    """Make edits; each side's new lines are its own, or equal by chance."""
    for name, line, text in which:
        path = root / name
        if name == "gone.txt":
            path.unlink(missing_ok=True)
            continue
        lines = path.read_text().split("\n") if path.exists() else [tag]
        number = min(line, len(lines) - 1)
        lines[number : number + 1] = [f"{text} {line % 2}"] if text else []
        path.write_text("\n".join(lines))


def build(root: Path, series: list, upstream_edits: list) -> World | None:
    """The world, None where a patch changes nothing."""
    upstream = root / "upstream"
    upstream.mkdir()
    git(upstream, "init", "-q", "-b", "main")
    for name in ("a.txt", "b.txt", "gone.txt"):
        (upstream / name).write_text("".join(f"{name} {n}\n" for n in range(LINES)))
    commit(upstream, "Pin\n")
    git(upstream, "tag", "v0.32.0")
    patches = root / "patches"
    patches.mkdir()
    text = TOML.format(
        commit=git(upstream, "rev-parse", "HEAD"),
        tree=git(upstream, "rev-parse", "HEAD^{tree}"),
        zeros="0" * 64,
    )
    git(upstream, "switch", "-q", "-c", "work")
    for number, which in enumerate(series, 1):
        change(upstream, which, f"patch {number}")
        git(upstream, "add", "-A")
        if not git(upstream, "status", "--porcelain"):
            return None
        make_commit(upstream, f"Patch {number}", number)
        file = f"{number:04}-patch.patch"
        text += PATCH.format(file=file, title=f"Patch {number}")
    git(upstream, "format-patch", "-q", "-o", str(patches), *FORMAT, "v0.32.0..work")
    for number in range(1, len(series) + 1):
        (patches / str(number)).rename(patches / f"{number:04}-patch.patch")
    (patches / "series.toml").write_text(text)
    git(upstream, "switch", "-q", "main")
    for number, which in enumerate(upstream_edits):
        change(upstream, which, "upstream")
        (upstream / "always.txt").write_text(f"{number}\n")
        commit(upstream, "Upstream\n")
    git(upstream, "branch", "-q", "-D", "work")
    world = World(root)
    make_clone(upstream, world.clone)
    git(world.clone, "switch", "-q", "-c", "mine")
    (world.clone / "a.txt").write_text("my edit\n")
    (world.clone / "mine.txt").write_text("untracked\n")
    git(world.clone, "config", "rerere.enabled", "true")
    return world


def resolve_all(world: World) -> None:
    """Decide every conflict somehow: the patch's side, files as they lie."""
    for session in sessions(world.build):
        tree = session.tree
        files = [path for path in tree.rglob("*") if ".git" not in path.parts]
        for path in filter(Path.is_file, files):
            text = path.read_text()
            if "<<<<<<< upstream" in text:
                kept, side = [], "both"
                for line in text.split("\n"):
                    mark = line[:8]
                    if mark == "<<<<<<< ":
                        side = "upstream"
                    elif mark == "||||||| ":
                        side = "pin"
                    elif line == "=======":
                        side = "patch"
                    elif mark == ">>>>>>> ":
                        side = "both"
                    elif side in ("both", "patch"):
                        kept.append(line)
                path.write_text("\n".join(kept))
        if tree.exists() and (tree / ".git/index").exists():
            git(tree, "add", "-A")


def act(world: World, name: str) -> None:
    """One thing that a user does; a refusal is an answer too."""

    def quiet(line: str) -> None:
        pass

    try:
        if name == "begin":
            onto.begin(world.toml, world.build, "origin/main", quiet, vllm=world.clone)
        elif name == "abort":
            resuming.abort(world.build, None)
        elif name == "apply":
            apply_to(world.toml, world.clone, switch=False, force=False)
        else:
            if name == "resolve":
                resolve_all(world)
            resuming.resume(world.build, None, quiet, skip=name == "skip")
    except SeriesError:
        pass


def require_whole(world: World, before: str) -> str:
    """The branch is what it was, or whole: its commits, in order, on one base."""
    tip = git(world.clone, "for-each-ref", "--format=%(objectname)", BRANCH)
    if tip == before or not tip:
        assert tip == before or not before
        return tip
    numbers = []
    for base in ("v0.32.0", "origin/main"):
        subjects = git(world.clone, "log", "--reverse", "--format=%s", f"{base}..{tip}")
        names = subjects.splitlines()
        if all(name.startswith("Patch ") for name in names):
            numbers = [int(name[6:]) for name in names]
            break
    else:
        raise AssertionError("the branch stands on no base of ours")
    assert numbers == sorted(set(numbers))
    git(world.clone, "fsck", "--connectivity-only", "--no-dangling")
    return tip


BRANCH = "refs/heads/rocm-series"
STILL = settings(
    max_examples=int(os.environ.get("SERIES_EXAMPLES", "10")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)


@STILL
@given(series=all_series, upstream=all_upstream, what=actions)
def test_nothing_of_the_users_ever_changes(series, upstream, what) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = build(Path(folder), series, upstream)
        if world is None:
            return
        before = seen_state(world.clone)
        tip = ""
        for name, kill in what:
            run = partial(act, world, name)
            if kill:
                killed_at(kill, run)
            else:
                run()
            assert seen_state(world.clone) == before, (name, kill)
            tip = require_whole(world, tip)
        # However it was left, giving up and beginning anew ends well or in a conflict.
        if list(sessions(world.build)):
            act(world, "abort")
        assert list(sessions(world.build)) == []
        act(world, "begin")
        for _ in series:
            if list(sessions(world.build)):
                act(world, "skip")
        assert list(sessions(world.build)) == []
        require_whole(world, tip)
        assert seen_state(world.clone) == before


@STILL
@given(series=all_series, upstream=all_upstream)
def test_what_lands_survives_an_export_and_says_the_truth(series, upstream) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = build(Path(folder), series, upstream)
        if world is None:
            return
        manifest = load_manifest(world.toml)
        repo = Repository.find(world.clone)

        def quiet(line: str) -> None:
            pass

        where = find_onto(repo, manifest, "origin/main", world.build, quiet, own=False)
        with rebase_over(repo, manifest, where, quiet) as rebase:
            carrier = rebase.carrier
            for source in rebase.sources:
                tip = carrier.tip
                step = carrier.carry(source)
                if step.state in ("clean", "moved"):
                    assert carrier.tip == step.commit != tip
                else:
                    assert carrier.tip == tip
                if step.state == "conflict":
                    assert step.clashes
                if step.state == "merged":
                    assert step.evidence.startswith(("content: ", "patch-id: "))
            faults = health.round_trip_faults
            assert faults(rebase.scratch, where.commit, carrier.tip) == []
            if not upstream:
                assert carrier.tip == rebase.sources[-1].commit


def test_the_whole_of_the_pin_is_the_series_itself(tmp_path: Path) -> None:
    """With nothing new upstream the rebase is the identity, to the commit ids."""
    series = [[("a.txt", 3, "one")], [("a.txt", 4, "two")], [("new.txt", 0, "x\ny")]]
    world = build(tmp_path, series, [])
    assert world is not None
    act(world, "apply")
    tip = git(world.clone, "rev-parse", BRANCH)
    act(world, "begin")
    assert git(world.clone, "rev-parse", BRANCH) == tip


@pytest.mark.parametrize("other", ["one", "two"])
def test_equal_by_chance(tmp_path: Path, other: str) -> None:
    """The same edit on both sides is merged; a different one is a conflict."""
    world = build(tmp_path, [[("a.txt", 3, "one")]], [[("a.txt", 3, other)]])
    assert world is not None
    manifest = load_manifest(world.toml)
    repo = Repository.find(world.clone)
    where = find_onto(repo, manifest, "origin/main", world.build, print, own=False)
    with rebase_over(repo, manifest, where, print) as rebase:
        [step] = [rebase.carrier.carry(source) for source in rebase.sources]
    assert step.state == ("merged" if other == "one" else "conflict")
