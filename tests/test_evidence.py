# SPDX-License-Identifier: Apache-2.0
"""What counts as merged upstream, and what only looks like it."""

import pytest

from series.carry import Step
from series.evidence import holds_symbol
from series.git import Repository
from series.manifest import ManifestError, Symbol
from series.releases import known_releases, release_store
from series.sources import Onto, find_onto, rebase_over, release_in

from .conftest import commit, git
from .upkeep import FAST, SERIES, Lab, add, both, in_function, swap

FILE = "vllm/ops.py"


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("def fast(x):\n    return x\n", True),
        ("async def fast(x):\n    return x\n", True),
        ("class fast:\n    pass\n", True),
        ("fast = 1\n", True),
        ("fast: int = 1\n", True),
        ("class A:\n    def fast(self):\n        pass\n", True),
        ("@wrap\ndef fast():\n    pass\n", True),
        ("from x import fast\n", False),
        ("fast(1)\n", False),
        ("fast: int\n", False),
        ("# def fast(x):\n", False),
        ('"""\ndef fast(x):\n"""\n', False),
        ("def faster(x):\n    pass\n", False),
        ("x.fast = 1\n", False),
        ("def broken(:\n", False),
        ("", False),
    ],
)
def test_only_a_definition_answers_a_probe(text: str, there: bool) -> None:
    assert holds_symbol(text, Symbol(file=FILE, symbol="fast")) is there


def test_what_is_no_name_is_searched_as_text() -> None:
    assert holds_symbol("a = {'k': 1}", Symbol(file=FILE, symbol="'k': 1"))
    assert holds_symbol("- fast\n", Symbol(file="a.yaml", symbol="fast"))
    assert not holds_symbol("- slow\n", Symbol(file="a.yaml", symbol="fast"))


def on_release(lab: Lab, said, version: str = "0.33.0") -> list[Step]:
    """What becomes of each patch on a release."""
    manifest = lab.manifest
    store = release_store(lab.build, known_releases(manifest), said)
    pin = next(p for p in known_releases(manifest) if p.release == version)
    with rebase_over(store, manifest, release_in(store, pin), said) as rebase:
        return [rebase.carrier.carry(source) for source in rebase.sources]


def on_clone(lab: Lab, said, name: str) -> list[Step]:
    """What becomes of each patch on a revision of a clone."""
    manifest = lab.manifest
    repo = Repository.find(lab.root / "clone")
    onto = find_onto(repo, manifest, name, lab.build, said, own=False)
    with rebase_over(repo, manifest, onto, said) as rebase:
        return [rebase.carrier.carry(source) for source in rebase.sources]


def test_the_probe_drops_what_another_form_replaces(lab: Lab, said) -> None:
    text = "def upstream_dot(x):\n    return x.sum()\n"
    lab.release("0.33.0", add("vllm/dot.py", text))
    first, second, third = on_release(lab, said)
    assert first.state == "merged"
    assert first.evidence == "probe: vllm/dot.py defines upstream_dot (drop_when)"
    assert second.state == "clean"
    assert third.state == "conflict"


def test_the_whole_change_is_there_already(lab: Lab, said) -> None:
    lab.release("0.33.0", both(*(edit for _, edit in SERIES[:2])))
    first, second, third = on_release(lab, said)
    assert first.state == second.state == "merged"
    assert first.evidence == "content: all of its changes are there already"
    assert third.state == "clean"


def test_there_with_later_edits_beside_it(lab: Lab, said) -> None:
    """Upstream took the patch and then changed the lines below: merging clashes."""
    later = swap("vllm/core.py", "value_24 = 24\n", "value_24 = 'later'\n")
    lab.release("0.33.0", both(SERIES[1][1], later))
    assert on_release(lab, said)[1].state == "merged"


def test_a_file_that_is_gone_is_never_merged(lab: Lab, said) -> None:
    def gone(root):
        (root / FILE).unlink()

    lab.release("0.33.0", gone)
    first, second, _ = on_release(lab, said)
    assert first.state == "conflict"
    assert "upstream has it no more" in first.clashes[0].reason
    assert second.state == "clean"


def test_removed_lines_alone_are_no_evidence(lab: Lab, said) -> None:
    """A patch that only removes, on a tree that lacks it all: empty, not merged."""
    text = (lab.patches / "0002-move-values.patch").read_text()
    new = text.replace("+value_20 = 'two'\n", "").replace(" +18,7", " +18,6")
    assert new.count(" +18,6") == 1
    remove_only(lab, new)
    lab.release("0.33.0", swap("vllm/core.py", "value_20 = 20\n", ""))
    second = on_release(lab, said)[1]
    assert (second.state, second.evidence) == ("empty", "nothing is left of it to do")


def remove_only(lab: Lab, diff: str) -> None:
    """Write a patch 0002 that takes one line away, with its blobs."""
    place = lab.root / "remove"
    git(lab.root, "clone", "-q", str(lab.upstream), str(place))
    git(place, "switch", "-q", "-c", "work", "v0.32.0")
    old = git(place, "rev-parse", "HEAD:vllm/core.py")
    swap("vllm/core.py", "value_20 = 20\n", "")(place)
    new = git(place, "hash-object", "-w", "vllm/core.py")
    lines = [
        f"index {old}..{new} 100644" if line.startswith("index ") else line
        for line in diff.splitlines()
    ]
    (lab.patches / "0002-move-values.patch").write_text("\n".join(lines) + "\n")
    toml = lab.toml.read_text()
    gone = 'symbols = [{ file = "vllm/core.py", symbol = "value_20" }]\n'
    lab.toml.write_text(toml.replace(gone, ""))
    lab.save("Remove only")


def test_the_same_lines_in_a_look_alike_are_not_it(lab: Lab, said) -> None:
    """Upstream has the same change, in the first of three equal functions."""
    lab.release("0.33.0", in_function("first", "    y = x * w\n", FAST))
    first = on_release(lab, said)[0]
    assert first.state in ("clean", "moved")


def test_the_same_lines_in_a_look_alike_and_a_clash(lab: Lab, said) -> None:
    edits = (
        in_function("first", "    y = x * w\n", FAST),
        in_function("second", "    y = x * w\n", "    y = w * x\n"),
    )
    lab.release("0.33.0", both(*edits))
    assert on_release(lab, said)[0].state == "conflict"


def test_an_upstream_commit_with_the_same_patch_id(lab: Lab, said) -> None:
    """The very change, committed by somebody else, then reworked beyond recognition."""
    git(lab.upstream, "switch", "-q", "main")
    add("a.txt", "a\n")(lab.upstream)
    commit(lab.upstream, "Before\n")
    SERIES[1][1](lab.upstream)
    taken = commit(lab.upstream, "Theirs, by another name (#123)\n")
    swap("vllm/core.py", "value_20 = 'two'\n", "value_20 = 20.0\n")(lab.upstream)
    commit(lab.upstream, "Rework\n")
    lab.clone()
    second = on_clone(lab, said, "origin/main")[1]
    assert second.state == "merged"
    wanted = f"patch-id: commit {taken[:12]} has the same patch-id"
    assert second.evidence == wanted


def test_patch_ids_in_a_partial_clone_fetch_little(lab: Lab, said) -> None:
    git(lab.upstream, "switch", "-q", "main")
    SERIES[1][1](lab.upstream)
    commit(lab.upstream, "Theirs\n")
    swap("vllm/core.py", "value_20 = 'two'\n", "value_20 = 20.0\n")(lab.upstream)
    commit(lab.upstream, "Rework\n")
    clone = lab.clone("--filter=blob:none", "--no-checkout")
    second = on_clone(lab, said, "origin/main")[1]
    assert second.evidence.startswith("patch-id: ")
    template = git(clone, "rev-parse", "origin/main:.github/PULL_REQUEST_TEMPLATE.md")
    with pytest.raises(AssertionError):
        git(clone, "cat-file", "-e", template, GIT_NO_LAZY_FETCH="1")


def test_a_shallow_clone_says_what_it_cannot_tell(lab: Lab, said) -> None:
    lab.release("0.33.0", SERIES[1][1])
    path = lab.clone("--depth=1", "--branch=v0.33.0")
    git(path, "fetch", "-q", "--depth=1", "origin", "tag", "v0.32.0")
    manifest = lab.manifest
    repo = Repository.find(path)
    onto = Onto("v0.33.0", repo.line("rev-parse", "v0.33.0^{commit}"))
    with rebase_over(repo, manifest, onto, said) as rebase:
        steps = [rebase.carrier.carry(source) for source in rebase.sources]
        assert "no common history" in rebase.carrier.history.missing
    # What the content shows does not need history.
    assert [step.state for step in steps] == ["clean", "merged", "clean"]


def test_a_probe_that_the_pin_answers_is_refused(lab: Lab, said) -> None:
    text = lab.toml.read_text().replace(
        '{ file = "vllm/dot.py", symbol = "upstream_dot" }',
        '{ file = "vllm/ops.py", symbol = "second" }',
    )
    lab.toml.write_text(text)
    lab.release("0.33.0", add("x.txt", "x\n"))
    with pytest.raises(ManifestError, match="already answers its drop_when"):
        on_release(lab, said)


def test_by_way_of_the_newest_release(lab: Lab, said) -> None:
    """What a release has merged is merged in what follows it, by the same evidence."""
    probe = "def upstream_dot(x):\n    return x.sum()\n"
    lab.release("0.33.0", both(add("vllm/dot.py", probe), SERIES[1][1]))
    git(lab.upstream, "switch", "-q", "-C", "main", "v0.33.0")
    swap("vllm/core.py", "value_20 = 'two'\n", "value_20 = 2\n")(lab.upstream)
    commit(lab.upstream, "Later\n", "2026-11-20T00:00:00+00:00")
    lab.clone()
    first, second, _ = on_clone(lab, said, "origin/main")
    assert first.evidence.startswith("probe: ")
    assert second.state == "merged"
    assert second.evidence.endswith(("(at v0.33.0)", "has the same patch-id"))
