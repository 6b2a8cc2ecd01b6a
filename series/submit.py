# SPDX-License-Identifier: Apache-2.0
"""A change set made ready for upstream: branch, patches, body, commands; no push."""

import os
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from . import health
from .blobs import changed_paths, entries
from .carry import LANDED, Source, Step
from .errors import ConflictError, SeriesError
from .git import Repository, make_repository, require_git
from .linters import Lint, run_linters, summary
from .locks import locked, scratch_folder
from .manifest import ChangeSet, Manifest, load_manifest
from .records import evidence_for
from .refusal import RefusedError, change_named, reasons, submitter
from .sources import Onto, Rebase, find_onto, rebase_over
from .submit_branch import move_to, signed_off, write_out
from .submit_text import UPSTREAM, Facts, checklist, title_of
from .target import Say, complete
from .tree import tree_at


@dataclass(frozen=True)
class Submission:
    """What was made, and what a person does with it.

    Args:
        branch: The branch with the change set alone.
        tip: Its last commit.
        base: The name of its base.
        steps: What became of each patch.
        folder: Where cover letter, patches and body lie.
        lints: Upstream's linters, a line each.
        missing: What has no current record.
        check: Commands and links to look at first.
        send: The commands that would send it; none was run.
        refusals: Why it would have been refused without --anyway.
    """

    branch: str
    tip: str
    base: str
    steps: tuple[Step, ...]
    folder: Path
    lints: tuple[str, ...]
    missing: tuple[str, ...]
    check: tuple[str, ...]
    send: tuple[str, ...]
    refusals: tuple[str, ...]


def submit(
    series: Path,
    build: Path,
    name: str,
    results: Path,
    say: Say,
    *,
    vllm: Path | None = None,
    onto: str | None = None,
    anyway: bool = False,
    lint: bool = True,
) -> Submission:
    """Make a change set ready to be sent upstream.

    Args:
        series: series.toml.
        build: The folder of build/vllm and of what is made.
        name: The change set.
        results: The folder of recorded measurements.
        say: Called with a line before something that takes time.
        vllm: A clone that gets the branch; None for build/vllm.
        onto: The newest upstream: a revision of the clone, or a release; left out, the
            pin.
        anyway: Make it though it looks merged or covered.
        lint: Run upstream's linters.

    Raises:
        RefusedError: It is merged, covered, or nobody signs it.
        ConflictError: A patch does not land there.
    """
    require_git()
    manifest = load_manifest(series)
    change = change_named(manifest, name)
    repo = Repository.find(vllm) if vllm else tree_at(build, manifest.pin)
    if repo is None:
        raise SeriesError(
            f"There is no pinned tree in {build} yet.", "Run `apply.py apply` first."
        )
    with locked(repo.common, lambda: say("Another run is at work here: waiting.")):
        target = onto or manifest.pin.tag
        place = find_onto(repo, manifest, target, build, say, own=vllm is None)
        with rebase_over(repo, manifest, place, say) as rebase:
            mine = [s for s in rebase.sources if s.patch.series == name]
            if not mine:
                raise RefusedError(f"The change set {name} has no patch.")
            steps = [rebase.carrier.carry(source) for source in mine]
            against = reasons(manifest, change, steps)
            if against and not anyway:
                raise RefusedError(
                    f"{name} is not to be sent: {'; '.join(against)}.",
                    "Where that is wrong or outdated, correct series.toml, or use "
                    "--anyway: it is told in the body.",
                )
            _require_landed(rebase, manifest, name, steps)
            who = submitter(repo)
            tip = signed_off(rebase, who)
            folder = build / "pr" / name
            lints = _lint(rebase, tip, build, say) if lint else []
            facts = _facts(rebase, change, mine, steps, place, results, lints, against)
            body = write_out(rebase, tip, facts, folder, who)
            branch = f"pr-{name}"
            move_to(repo, rebase.scratch, branch, place.commit, tip)
    send = _send(repo, branch, body, facts, vllm is not None)
    return Submission(
        branch,
        tip,
        place.name,
        tuple(steps),
        folder,
        tuple(summary(lints)) or ("not run",),
        facts.evidence.missing,
        tuple(checklist(facts)),
        tuple(send),
        tuple(against),
    )


def _require_landed(
    rebase: Rebase, manifest: Manifest, name: str, steps: list[Step]
) -> None:
    for step in steps:
        if step.state == "conflict":
            first = step.clashes[0]
            raise ConflictError(
                f"{step.file} does not land on {rebase.onto.name} without the other "
                f"change sets: {first.path}, {first.reason}.",
                f"Adapt it first: apply.py apply --onto {rebase.onto.name}",
            )
    if not any(step.state in LANDED for step in steps):
        raise RefusedError(f"Nothing of {name} is left to send.")
    base, tip = rebase.onto.commit, rebase.carrier.tip
    faults = [
        *health.syntax_faults(rebase.scratch, base, tip),
        *health.symbol_faults(
            rebase.scratch, manifest, steps, tip, rebase.carrier.need
        ),
    ]
    if faults:
        raise SeriesError(f"{name} is broken on its own: {'; '.join(faults)}.")


def _lint(rebase: Rebase, tip: str, build: Path, say: Say) -> list[Lint]:
    scratch = rebase.scratch
    changed = changed_paths(scratch, rebase.onto.commit, tip)
    files = sorted(entries(scratch, tip, changed))
    say("Running upstream's linters on the changed files.")
    with scratch_folder() as folder:
        tree = folder / "tree"
        tree.mkdir()
        there = replace(scratch, worktree=tree)
        index = {"GIT_INDEX_FILE": str(folder / "index")}
        there.git("read-tree", tip, env=index)
        out = there.git("ls-files", "-s", "-z", env=index)
        oids = {item.split(" ")[1] for item in os.fsdecode(out).split("\0") if item}
        complete(rebase.repo, scratch.missing(sorted(oids)), say)
        there.git("checkout-index", "-a", env=index)
        # Some of upstream's scripts ask git for the files of the tree.
        make_repository(tree).git("add", "-A", "-f")
        return run_linters(tree, files, build / "lint")


def _facts(
    rebase: Rebase,
    change: ChangeSet,
    mine: list[Source],
    steps: list[Step],
    place: Onto,
    results: Path,
    lints: list[Lint],
    against: list[str],
) -> Facts:
    landed = [step.state in LANDED for step in steps]
    kept = [source for source, is_in in zip(mine, landed, strict=True) if is_in]
    tests = dict.fromkeys(test for source in kept for test in source.patch.tests)
    there = entries(rebase.scratch, rebase.carrier.tip, [_file(t) for t in tests])
    return Facts(
        change,
        kept,
        steps,
        place.name,
        evidence_for(results, rebase.scratch, kept),
        lints,
        [test for test in tests if _file(test) in there],
        against,
    )


def _file(test: str) -> str:
    return test.split("::", 1)[0]


def _send(
    repo: Repository, branch: str, body: Path, facts: Facts, clone: bool
) -> list[str]:
    where = shlex.quote(str(repo.worktree or repo.gitdir))
    title = title_of(facts)
    head = f"YOUR-NAME:{branch}"
    with suppress(SeriesError):
        url = repo.line("config", "--get", "remote.fork.url")
        if match := re.search(r"[:/]([^/:]+)/[^/]+?(?:\.git)?$", url):
            head = f"{match[1]}:{branch}"
    words = [
        f"git -C {where} push fork {branch}",
        f"gh pr create --repo {UPSTREAM} --base main --head {head} "
        f"--title {shlex.quote(title)} --body-file {shlex.quote(str(body))}",
    ]
    if not clone:
        words.insert(0, "# needs a clone of vLLM: make it again with --vllm CLONE")
    return words
