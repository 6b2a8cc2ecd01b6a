# SPDX-License-Identifier: Apache-2.0
"""The matrix: what it says, what fails it, and that it changes nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from series import checking, imports, matrix
from series.check import check
from series.errors import DiskError, SeriesError
from series.expected import ExpectedError, load_expected, record_expected
from series.git import Repository
from series.imports import Import

from .conftest import commit, git, seen_state
from .full_disk import with_file_limit
from .test_onto import CLASH
from .upkeep import SERIES, Lab, add, both, swap

ROOT = Path(__file__).parent.parent


@pytest.fixture
def lab(lab: Lab) -> Lab:
    """A lab with a release before the pin and one after it."""
    lab.release("0.31.0", swap("vllm/core.py", "value_5 = 5\n", ""))
    lab.release("0.33.0", SERIES[1][1])
    return lab


def words_of(found) -> dict[str, list[str]]:
    """The cells by base."""
    data = matrix.matrix_data(found)
    return {c["onto"]: [s["outcome"] for s in c["steps"]] for c in data["columns"]}


def expect(lab: Lab, said) -> None:
    """Record what is there now as expected."""
    found = check(lab.manifest, lab.build, said, compare=False)
    steps = {column.onto: list(column.steps) for column in found.columns}
    record_expected(lab.manifest, steps)


def test_every_patch_on_every_release(lab: Lab, said) -> None:
    found = check(lab.manifest, lab.build, said)
    assert words_of(found) == {
        "v0.31.0": ["clean", "moved", "clean"],
        "v0.32.0": ["clean", "clean", "clean"],
        "v0.33.0": ["clean", "merged (content)", "clean"],
    }
    assert found.good
    text = matrix.markdown(found)
    assert "| patch | v0.31.0 | v0.32.0 | v0.33.0 |" in text
    assert "| 0002 Move two values | moved | clean | merged (content) |" in text
    assert "v0.31.0  0002 moved: vllm/core.py: -1 lines" in text


def test_it_lands_the_same_tree_as_an_apply(lab: Lab, said) -> None:
    from series import onto

    found = check(lab.manifest, lab.build, said)
    lab.own()
    for column in found.columns:
        done = onto.begin(lab.toml, lab.build, column.onto, said)
        assert done.landed.tree == column.tree


def test_a_change_of_any_cell_fails(lab: Lab, said) -> None:
    expect(lab, said)
    assert check(lab.manifest, lab.build, said).good
    cells = load_expected(lab.manifest)
    path = lab.patches / "expected.toml"
    whole = path.read_text()
    for base, rows in cells.items():
        for file, word in rows.items():
            other = "empty" if word != "empty" else "clean"
            line = f'"{file}" = "{word}"'
            head, mark, tail = whole.partition(f'["{base}"]')
            path.write_text(
                head + mark + tail.replace(line, f'"{file}" = "{other}"', 1)
            )
            found = check(lab.manifest, lab.build, said, onto=[base])
            assert not found.good
            [said_] = found.columns[0].changed
            assert said_ == f"{file[:4]} is {word}; {other} was expected"


def test_a_patch_without_a_recorded_cell_fails(lab: Lab, said) -> None:
    expect(lab, said)
    path = lab.patches / "expected.toml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "0003" not in line))
    found = check(lab.manifest, lab.build, said)
    assert not found.good
    assert found.columns[0].changed == ("0003 is clean; nothing is recorded for it",)


def test_an_expected_conflict_is_no_failure_and_an_unexpected_one_is(
    lab: Lab, said
) -> None:
    lab.release("0.34.0", CLASH)
    found = check(lab.manifest, lab.build, said)
    assert not found.good
    assert "0001 is conflict; nothing is recorded for it" in found.columns[3].changed
    expect(lab, said)
    assert check(lab.manifest, lab.build, said).good


@pytest.mark.parametrize(
    "text",
    [
        '["v0.31.0"]\n"0009-none.patch" = "clean"\n',
        '["v0.31.0"]\n"0001-add-the-dot.patch" = "fine"\n',
        "broken",
        "x = 1\n",
    ],
)
def test_wrong_expectations_are_named(lab: Lab, said, text: str) -> None:
    (lab.patches / "expected.toml").write_text(text)
    with pytest.raises(ExpectedError, match=r"expected\.toml"):
        check(lab.manifest, lab.build, said)


def test_what_applies_but_is_broken_shows(
    lab: Lab, said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream has a function of the name that a patch adds, elsewhere in the file."""
    text = lab.toml.read_text().replace(
        'symbols = [{ file = "vllm/core.py", symbol = "value_20" }]',
        'symbols = [{ file = "vllm/core.py", symbol = "value_7" }]',
    )
    lab.toml.write_text(text)
    git(lab.upstream, "switch", "-q", "-C", "main", "v0.32.0")
    swap("vllm/core.py", "value_50 = 50\n", "value_7 = 0\n")(lab.upstream)
    swap("vllm/ops.py", "import math\n", "import math\nif True print(\n")(lab.upstream)
    commit(lab.upstream, "Later\n")
    clone = lab.clone()
    # An import would fail on the same line once more.
    monkeypatch.setattr(imports, "has_torch", lambda python: False)
    found = check(lab.manifest, lab.build, said, clone=clone, onto=["origin/main"])
    assert not found.good
    first, second = found.columns[0].faults
    assert first.startswith("vllm/ops.py:2 does not compile")
    assert second == "0002: value_7 is 2 times in vllm/core.py"


def test_a_clones_main_is_a_column_and_the_clone_stays(lab: Lab, said) -> None:
    clone = lab.clone()
    (clone / "vllm/core.py").write_text("edited\n")
    before = seen_state(clone)
    project = seen_state(lab.project)
    found = check(lab.manifest, lab.build, said, clone=clone)
    assert next(iter(words_of(found))) == "origin/main"
    assert len(found.columns) == 4
    assert seen_state(clone) == before
    assert seen_state(lab.project) == project


def test_a_partial_clone_is_checked_without_imports(
    lab: Lab, said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "has_torch", lambda python: True)
    clone = lab.clone("--filter=blob:none", "--no-checkout")
    found = check(lab.manifest, lab.build, said, clone=clone, onto=["origin/main"])
    assert any("partial clone" in note for note in found.columns[0].notes)
    assert not [fault for fault in found.columns[0].faults if "import" in fault]


def test_bases_that_do_not_exist(lab: Lab, said) -> None:
    with pytest.raises(SeriesError, match="no recorded release"):
        check(lab.manifest, lab.build, said, onto=["0.9"])
    with pytest.raises(SeriesError, match="no revision"):
        check(lab.manifest, lab.build, said, clone=lab.clone(), onto=["nope"])
    with pytest.raises(SeriesError, match="no origin/main"):
        check(lab.manifest, lab.build, said, clone=lab.upstream)


def test_the_command_line(lab: Lab, said, tmp_path: Path) -> None:
    front = [sys.executable, str(ROOT / "apply.py"), "--series", str(lab.toml)]
    front += ["--build", str(lab.build)]

    def run(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run([*front, *words], capture_output=True, text=True)

    recorded = run("check", "--record")
    assert recorded.returncode == 0, recorded.stderr
    summary = tmp_path / "summary.md"
    summary.write_text("# Before\n")
    good = run("check", "--json", "--markdown", str(summary))
    assert good.returncode == 0
    assert json.loads(good.stdout)["good"] is True
    assert summary.read_text().startswith("# Before\n## The series on upstream")
    path = lab.patches / "expected.toml"
    path.write_text(path.read_text().replace("merged (content)", "clean"))
    bad = run("check")
    assert bad.returncode == 3
    assert "unexpected: 0002 is merged (content); clean was expected" in bad.stdout
    assert "not as expected" in bad.stdout


def test_modules_that_do_not_import(lab: Lab, tmp_path: Path) -> None:
    """Any interpreter shows it; one with torch is asked for where it matters."""
    bad = both(
        add("vllm/bad.py", "import vllm.nothing\n"),
        add("vllm/raises.py", "raise RuntimeError('no')\n"),
        add("vllm/lacks.py", "import not_installed_anywhere\n"),
        add(
            "vllm/fine.py",
            "import os\nassert os.environ['CUDA_VISIBLE_DEVICES'] == ''\n",
        ),
    )
    git(lab.upstream, "switch", "-q", "main")
    bad(lab.upstream)
    commit(lab.upstream, "Bad\n")
    repo = Repository.find(lab.upstream)
    names = ("vllm.bad", "vllm.raises", "vllm.lacks", "vllm.fine")
    job = Import(repo, repo.tree_of("main"), "0.32.0", names)
    cache = tmp_path / "cache"
    [said] = imports.import_faults([job], sys.executable, cache)
    assert said == [
        "vllm.bad does not import: No module named 'vllm.nothing'",
        "vllm.raises does not import: RuntimeError: no",
    ]
    # The answer is kept; the exported tree is not.
    [answer] = cache.iterdir()
    answer.write_text('["kept"]')
    assert imports.import_faults([job], sys.executable, cache) == [["kept"]]


def test_an_interpreter_that_dies(lab: Lab, tmp_path: Path) -> None:
    git(lab.upstream, "switch", "-q", "main")
    add("vllm/dies.py", "import os\nos._exit(7)\n")(lab.upstream)
    commit(lab.upstream, "Dies\n")
    repo = Repository.find(lab.upstream)
    job = Import(repo, repo.tree_of("main"), "0.32.0", ("vllm.dies",))
    [[said]] = imports.import_faults([job], sys.executable, tmp_path / "c")
    assert said.startswith("importing ended with 7")


def test_an_interpreter_without_torch_is_not_taken(lab: Lab, said) -> None:
    with pytest.raises(SeriesError, match="has no torch"):
        check(lab.manifest, lab.build, said, python="/bin/false")
    assert not imports.has_torch(os.devnull)


@pytest.mark.parametrize("keep", [0, 3, 6, 9])
def test_outcomes_that_were_cut_off_are_refused(lab: Lab, said, keep: int) -> None:
    expect(lab, said)
    path = lab.patches / "expected.toml"
    whole = path.read_text()
    path.write_text("".join(whole.splitlines(keepends=True)[:keep]))
    with pytest.raises(ExpectedError, match="has no outcomes for") as caught:
        check(lab.manifest, lab.build, said)
    assert str(path) in str(caught.value)
    assert "--record" in caught.value.hint
    path.write_text(whole[: len(whole) // 2].rstrip().removesuffix('"'))
    with pytest.raises(ExpectedError, match="cannot be read") as caught:
        check(lab.manifest, lab.build, said)
    assert "git checkout" in caught.value.hint


def test_outcomes_that_cannot_be_written_stay(lab: Lab, said) -> None:
    expect(lab, said)
    path = lab.patches / "expected.toml"
    whole = path.read_bytes()
    found = check(lab.manifest, lab.build, said)
    steps = {column.onto: list(column.steps) for column in found.columns}
    message = with_file_limit(100, lambda: record_expected(lab.manifest, steps))
    assert f"{path}: File too large" in message
    assert path.read_bytes() == whole
    assert not list(lab.patches.glob(".*"))


def test_a_fault_of_the_disk_is_none_of_the_tree(lab: Lab, tmp_path: Path) -> None:
    git(lab.upstream, "switch", "-q", "main")
    full = "open('/dev/full', 'w', buffering=1).write('x\\n')\n"
    add("vllm/writes.py", full)(lab.upstream)
    commit(lab.upstream, "Writes\n")
    repo = Repository.find(lab.upstream)
    job = Import(repo, repo.tree_of("main"), "0.32.0", ("vllm.writes",))
    cache = tmp_path / "cache"
    with pytest.raises(DiskError, match="No space left on device") as caught:
        imports.import_faults([job], sys.executable, cache)
    assert str(cache) in caught.value.what
    assert list(cache.iterdir()) == []


def test_what_imports_keep_goes_with_the_tree(lab: Lab, tmp_path: Path) -> None:
    git(lab.upstream, "switch", "-q", "main")
    keeps = "import tempfile\nopen(tempfile.gettempdir() + '/kept', 'w').close()\n"
    add("vllm/keeps.py", keeps)(lab.upstream)
    commit(lab.upstream, "Keeps\n")
    repo = Repository.find(lab.upstream)
    job = Import(repo, repo.tree_of("main"), "0.32.0", ("vllm.keeps",))
    assert imports.import_faults([job], sys.executable, tmp_path / "c") == [[]]
    assert not (Path(os.environ["TMPDIR"]) / "kept").exists()


def test_a_cache_that_cannot_be_written_is_named(lab: Lab, tmp_path: Path) -> None:
    repo = Repository.find(lab.upstream)
    job = Import(repo, repo.tree_of("main"), "0.32.0", ("vllm.ops",))
    cache = tmp_path / "cache"

    def run() -> None:
        imports.import_faults([job], sys.executable, cache)

    # An index fits, the files of the tree do not.
    assert str(cache) in with_file_limit(50, run)


@pytest.mark.parametrize("before", [None, "", "mine\n"])
def test_a_summary_that_cannot_be_written_is_as_before(
    tmp_path: Path, before: str | None
) -> None:
    path = tmp_path / "sum.md"
    if before is not None:
        path.write_text(before)
    said = with_file_limit(20, lambda: checking._append(path, "x" * 99))
    assert f"{path} cannot be written: File too large" in said
    assert (path.read_text() if path.exists() else None) == before
