# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals import bundle, pieces, wheels
from evals.bare import fitting, unpacking
from evals.bare import run as bare
from evals.extensions import Extensions
from series.errors import SeriesError
from series.git import Repository
from tests.harness import plan as plans
from tests.harness import tree
from tests.harness.plan import Patch, Plan

from .conftest import commit, git
from .full_disk import full_disk

ROOT = Path(__file__).parent.parent
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def wheel(folder: Path, name: str, body: str) -> Path:
    """A wheel of one module."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", body)
        archive.writestr(f"{info}/METADATA", f"Name: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def planned(tmp_path: Path) -> Plan:
    """A small patched tree, as the bundle command finds it."""
    vllm = tmp_path / "vllm tree"
    files = {
        "vllm/__init__.py": "",
        "vllm/templates/chat.jinja": "{{ x }}",
        "vllm/big.so": "not to be carried",
        "csrc/gdn/kernel.cu": "// op",
        "csrc/core/compat.h": "// header",
        "csrc/other/other.cu": "// another op",
        "tests/kernels/test_dot.py": "",
        "benchmarks/kernels/bench_dot.py": "import os; print(os.environ['PYTHONPATH'])",
        "docs/page.md": "not to be carried",
    }
    for name, text in files.items():
        (vllm / name).parent.mkdir(parents=True, exist_ok=True)
        (vllm / name).write_text(text)
    git(vllm, "init", "-q", "-b", "rocm-series")
    commit(vllm, "The release")
    (vllm / "vllm/dot.py").write_text("import triton\n@triton.jit\ndef dot(x): pass\n")
    (vllm / "vllm/__init__.py").write_text("patched = True\n")
    commit(vllm, "Dot")
    patches = [("0001-dot", ["tests/kernels/test_dot.py"])]
    return tree.plan(Repository.find(vllm), "rocm-series", "0.32.0", patches, vllm)


@pytest.fixture
def made(
    planned: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, list]:
    """A bundle for this Python, with one wheel, fetched without a network."""
    monkeypatch.setattr(bundle, "PYTHON", HERE)
    monkeypatch.setattr(
        wheels,
        "fetch",
        lambda wanted, python, folder: [
            wheel(tmp_path / "wheels", "carried", "value = 'from the bundle'\n")
        ],
    )
    out = tmp_path / "a bundle"
    return out, build(planned, out)


def build(planned: Plan, out: Path, found: Extensions | None = None) -> list:
    repo = Repository.find(planned.path)
    return bundle.build(repo, planned, "pip 23.0\n", found, out)


def test_the_bundle_carries_what_is_needed_and_no_more(made: tuple[Path, list]) -> None:
    out, written = made
    index = json.loads((out / "bundle.json").read_text())
    assert [piece["file"] for piece in index["pieces"]] == [
        "tree.tar.xz",
        "op.tar.xz",
        "harness.tar.xz",
        "stock.tar.xz",
        "wheels-1.tar",
    ]
    for piece in index["pieces"]:
        data = (out / piece["file"]).read_bytes()
        assert len(data) == piece["size"] <= pieces.LIMIT
        assert hashlib.sha256(data).hexdigest() == piece["sha256"]
    assert names(out / "tree.tar.xz") == {
        "vllm/__init__.py",
        "vllm/dot.py",
        "vllm/templates/chat.jinja",
        "tests/kernels/test_dot.py",
        "benchmarks/kernels/bench_dot.py",
        "vllm-0.32.0.dist-info/METADATA",
    }
    assert names(out / "op.tar.xz") == {"csrc/gdn/kernel.cu", "csrc/core/compat.h"}
    harness = names(out / "harness.tar.xz")
    assert {"plan.json", "tests/harness/suite.py", "evals/gdn_op/build.py"} <= harness
    assert "tests/patched/series_harness/plugin.py" in harness
    assert {"evals/gdn.py", "series/errors.py"} <= harness
    assert "series/git.py" not in harness
    assert not {"tests/harness/tree.py", "tests/conftest.py"} & harness
    assert [vars(piece) for piece in written] == index["pieces"]
    assert len(index["commit"]) == 40
    assert names(out / "stock.tar.xz") == {"vllm/__init__.py"}
    assert index["added"] == ["vllm/dot.py"]
    assert index["extensions"] is None
    assert {"scipy", "rich", "msgspec"} <= set(index["needs"])
    assert {path.name for path in out.iterdir()} == {
        *(piece["file"] for piece in index["pieces"]),
        *("bundle.json", "run.py", "unpacking.py", "fitting.py"),
    }


def names(archive: Path) -> set[str]:
    with tarfile.open(archive) as opened:
        return set(opened.getnames())


def test_what_is_carried_imports_nothing_that_is_not(made: tuple[Path, list]) -> None:
    out, _ = made
    with tarfile.open(out / "harness.tar.xz") as opened:
        for name in opened.getnames():
            member = opened.extractfile(name)
            if name.startswith("tests/harness/") and member is not None:
                assert not re.search(r"^(from|import) series\b", member.read().decode())


def test_the_same_tree_gives_the_same_bytes(
    made: tuple[Path, list], planned: Plan, tmp_path: Path
) -> None:
    _, first = made
    os.utime(planned.path / "vllm/dot.py", (1, 1))
    (planned.path / "vllm/dot.py").chmod(0o600)
    second = bundle.source_pieces(planned, tmp_path)
    assert second == first[:3]


def test_a_bundle_that_could_not_be_finished_has_no_index(
    made: tuple[Path, list], planned: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = made

    def fail(*args: object) -> None:
        raise SeriesError("no network")

    monkeypatch.setattr(wheels, "fetch", fail)
    with pytest.raises(SeriesError, match="no network"):
        build(planned, out)
    assert not (out / "bundle.json").exists()
    assert not list(out.glob("wheels-*"))


def test_the_machines_own_list_leaves_out_what_it_has(
    planned: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fetch(wanted: list[str], python: str, folder: Path) -> list[Path]:
        asked.extend(wanted)
        return [wheel(tmp_path / "wheels", "carried", "")]

    monkeypatch.setattr(wheels, "fetch", fetch)
    pins = bundle.required(False)
    everything = "\n".join(name for name in pins if name != "regex")
    bundle.wheel_pieces(everything, False, tmp_path, tmp_path)
    assert asked == [pins["regex"]]
    asked.clear()
    assert bundle.wheel_pieces(everything + "\nregex", False, tmp_path, tmp_path) == []
    bundle.wheel_pieces("", True, tmp_path, tmp_path)
    assert len(asked) > 140
    assert not {name.split("==")[0] for name in asked} & {"torch", "triton"}


@pytest.mark.parametrize(
    "text",
    [
        "Package    Version\n---------- -------\nPyYAML     6.0\nmsgspec    0.1\n",
        '[{"name": "PyYAML", "version": "6.0"}, {"name": "msgspec", "version": "1"}]',
        "pyyaml==6.0\nmsgspec @ file:///x\n",
        "# names\npyyaml\nmsgspec\n\n",
        "PyYAML[extra]>=6 ; python_version > '3'\nmsgspec\n",
    ],
)
def test_every_kind_of_package_list_is_read(text: str) -> None:
    assert wheels.listed(text) == {"pyyaml", "msgspec"}


def test_pins_heed_the_python_they_are_for() -> None:
    text = "a_b==1\nsix==2; python_version >= '3.12'\nold==3 ; python_version < '3.12'"
    assert wheels.pins(text, "3.11") == {"a-b": "a-b==1", "old": "old==3"}
    assert wheels.pins(text, "3.12") == {"a-b": "a-b==1", "six": "six==2"}


def test_wheels_once_fetched_are_kept_and_others_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def download(call: list[str], **kwargs: object) -> subprocess.CompletedProcess:
        calls.append(call)
        folder = Path(call[call.index("--dest") + 1])
        for requirement in call[call.index("--dest") + 2 :]:
            wheel(folder, requirement.split("==")[0], "")
        return subprocess.CompletedProcess(call, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    folder = tmp_path / "wheels"
    assert len(wheels.fetch(["a==1", "b==1"], "3.12", folder)) == 2
    assert len(wheels.fetch(["b==1", "a==1"], "3.12", folder)) == 2
    assert len(calls) == 1
    assert [p.name[0] for p in wheels.fetch(["c==1"], "3.12", folder)] == ["c"]
    wheels.fetch(["c==1"], "3.11", folder)
    assert len(calls) == 3
    words = calls[0]
    assert words[words.index("--python-version") + 1] == "3.12"
    assert "--no-deps" in words
    assert "--index-url" not in words


def test_a_wheel_that_cannot_be_fetched_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "noise\nERROR: No matching distribution found for nope==1\n"
    result = subprocess.CompletedProcess([], 1, "", said)
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: result)
    with pytest.raises(SeriesError, match=r"No matching distribution .* nope==1"):
        wheels.fetch(["nope==1"], "3.12", tmp_path / "wheels")
    assert not (tmp_path / "wheels/fetched.txt").exists()


@given(st.lists(st.integers(0, 30_000), max_size=30))
def test_groups_of_files_fit_their_piece(sizes: list[int]) -> None:
    limit = 64_000
    files = [(f"{number}.whl", bytes(size)) for number, size in enumerate(sizes)]
    groups = pieces.split(files, limit)
    assert [file for group in groups for file in group] == files
    for group in groups:
        blocks = sum(512 + (len(data) + 511) // 512 * 512 for _, data in group)
        assert blocks + 10240 <= limit


def test_a_piece_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "LIMIT", 20_000)
    with pytest.raises(SeriesError, match="would have"):
        pieces.pack(tmp_path / "big.tar", ".", [("a", bytes(30_000))])
    assert list(tmp_path.iterdir()) == []


def test_a_plan_survives_the_journey(tmp_path: Path) -> None:
    patch = Patch("0001-x", ("tests/a.py::test",), ("vllm.a.k",), ("vllm/a.py",))
    plan = Plan(tmp_path / "here", "0.32.0", "c" * 40, "rocm-series", (patch,))
    text = plan.dump()
    assert str(tmp_path) not in text
    arrived = plans.load(text, tmp_path / "there")
    assert arrived.path == tmp_path / "there"
    assert arrived.patches == plan.patches
    assert arrived.dump() == text


def carried(
    out: Path, *words: str, torch: str | None = "2.11.0", **env: str
) -> subprocess.CompletedProcess:
    """Runs the bundle's run.py where torch is a stand-in, or absent."""
    fakes = out.parent / "fakes"
    fakes.mkdir(exist_ok=True)
    if torch:
        (fakes / "torch.py").write_text(FAKE_TORCH.format(torch))
    path = {"PYTHONPATH": str(fakes)} if torch else {}
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    interpreter = sys.executable if torch else bare_python(out.parent)
    return subprocess.run(
        [interpreter, str(out / "run.py"), *words],
        cwd=out.parent,
        env={**clean, **path, **env},
        capture_output=True,
        text=True,
    )


FAKE_TORCH = """\
from types import SimpleNamespace as S
__version__ = {0!r}
version = S(hip=None, cuda="13.0")
cuda = S(is_available=lambda: False)
compiled_with_cxx11_abi = lambda: True
"""


def bare_python(folder: Path) -> str:
    """A Python that has nothing but itself."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder / "bare")],
        check=True,
    )
    return str(folder / "bare/bin/python")


def test_unpacking_checks_first_and_happens_once(made: tuple[Path, list]) -> None:
    out, _ = made
    index = json.loads((out / "bundle.json").read_text())
    index["needs"] = ["carried", "pip"]
    (out / "bundle.json").write_text(json.dumps(index))
    into = out.parent / "unpacked here"
    done = carried(out, "unpack", "--into", str(into))
    assert done.returncode == 0, done.stderr
    (folder,) = into.iterdir()
    assert done.stdout.splitlines()[-1] == f"unpacked in {folder}"
    assert "torch 2.11.0" in done.stdout
    assert (folder / "tree/vllm/dot.py").exists()
    assert (folder / "tree/csrc/gdn/kernel.cu").exists()
    assert (folder / "tree/vllm/_C_stable_libtorch.py").read_text() == ""
    assert (folder / "tree/vllm/__init__.py").read_text() == "patched = True\n"
    assert (folder / "stock/vllm/__init__.py").read_text() == ""
    assert not (folder / "stock/vllm/dot.py").exists()
    # Of what the patches left alone there is one copy.
    shared = "vllm/templates/chat.jinja"
    assert (folder / "stock" / shared).samefile(folder / "tree" / shared)
    assert "from the bundle" in (folder / "site/carried.py").read_text()
    assert (folder / "tests/patched/series_harness/plugin.py").exists()
    (folder / "kept").touch()
    assert carried(out, "unpack", "--into", str(into)).returncode == 0
    assert (folder / "kept").exists()
    assert list(into.iterdir()) == [folder]


def test_what_is_missing_on_the_machine_is_named(made: tuple[Path, list]) -> None:
    out, _ = made
    index = json.loads((out / "bundle.json").read_text())
    index["needs"] = ["carried", "no-such-package"]
    (out / "bundle.json").write_text(json.dumps(index))
    done = carried(out, "test", "--into", str(out.parent / "there"))
    assert done.returncode == 1
    assert "lacks no-such-package, and so does the bundle" in done.stderr
    assert "carried" not in done.stderr.split("lacks", 1)[1].split(",")[0]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda out: (out / "op.tar.xz").write_bytes(b"cut"), "op.tar.xz is damaged"),
        (lambda out: (out / "wheels-1.tar").unlink(), "missing: wheels-1.tar"),
        (lambda out: (out / "bundle.json").unlink(), "make bundle did not finish"),
    ],
)
def test_a_damaged_bundle_unpacks_nothing(
    made: tuple[Path, list], harm: object, said: str
) -> None:
    out, _ = made
    harm(out)  # type: ignore[operator]
    into = out.parent / "there"
    done = carried(out, "unpack", "--into", str(into))
    assert done.returncode == 1
    assert said in done.stderr
    assert not into.exists()


def test_another_python_and_no_torch_are_refused(made: tuple[Path, list]) -> None:
    out, _ = made
    done = carried(out, "unpack", "--into", str(out.parent / "there"), torch=None)
    assert done.returncode == 1
    assert "has no torch" in done.stderr
    index = json.loads((out / "bundle.json").read_text())
    (out / "bundle.json").write_text(json.dumps({**index, "python": "3.7"}))
    done = carried(out, "unpack", "--into", str(out.parent / "there"))
    assert done.returncode == 1
    assert f"This is Python {HERE}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_benchmark_needs_a_gpu_and_a_name_that_is_there(
    made: tuple[Path, list],
) -> None:
    out, _ = made
    index = json.loads((out / "bundle.json").read_text())
    (out / "bundle.json").write_text(json.dumps({**index, "needs": []}))
    into = str(out.parent / "there")
    done = carried(out, "bench", "bench_nothing", "--into", into)
    assert done.returncode == 1
    assert "no benchmark bench_nothing; there are: dot, gdn, bench_dot" in done.stderr
    done = carried(out, "bench", "bench_dot", "--into", into)
    assert done.returncode == 1
    assert "torch sees no GPU" in done.stderr


def test_unpacking_that_fails_leaves_nothing(
    made: tuple[Path, list], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = made
    described = unpacking.load_index(out)
    paths = unpacking.found(described, out, tmp_path / "no store")

    def fail(folder: Path) -> None:
        raise unpacking.BundleError("pip could not unpack the wheels: no space")

    monkeypatch.setattr(unpacking, "install", fail)
    into = tmp_path / "there"
    with pytest.raises(unpacking.BundleError, match="no space"):
        unpacking.unpack(described, paths, into, {"cuda": "13.0"})
    assert list(into.iterdir()) == []


def brought(out: Path, *names: str) -> Path:
    """A folder with a part of the bundle, as one of several calls brings it."""
    folder = out.parent / "brought"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("run.py", "unpacking.py", "fitting.py", "bundle.json", *names):
        shutil.copyfile(out / name, folder / name)
    return folder


def test_pieces_that_come_one_after_the_other(made: tuple[Path, list]) -> None:
    out, written = made
    index = json.loads((out / "bundle.json").read_text())
    (out / "bundle.json").write_text(json.dumps({**index, "needs": []}))
    into = str(out.parent / "there")
    first, *others = [piece.file for piece in written]
    done = carried(brought(out, first), "store", "--into", into)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"missing still: {', '.join(others)}\n")
    done = carried(brought(out), "unpack", "--into", into)
    assert done.returncode == 1
    assert f"missing: {', '.join(others)}." in done.stderr
    folder = brought(out, *others)
    (folder / others[0]).write_bytes(b"cut")
    done = carried(folder, "store", "--into", into)
    assert done.returncode == 1
    assert f"{others[0]} is damaged" in done.stderr
    done = carried(brought(out, *others), "store", "--into", into)
    assert done.stdout.endswith("missing still: nothing\n")
    done = carried(brought(out), "unpack", "--into", into)
    assert done.returncode == 0, done.stderr
    assert "unpacked in" in done.stdout


@pytest.mark.parametrize("limit", [0, 20_000])
@pytest.mark.parametrize("name", ["e.tar", "e.tar.xz"])
def test_an_archive_that_does_not_fit_on_the_disk(
    tmp_path: Path, name: str, limit: int
) -> None:
    out = tmp_path / name
    data = {"vllm/a.so": os.urandom(50_000)}
    with full_disk(30_000), pytest.raises(OSError) as raised:
        pieces.pack_parts(out, "tree", data.items(), limit)
    assert raised.value.filename == str(out)
    assert [*tmp_path.iterdir()] == []


def test_a_part_that_does_not_fit_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = pieces._write

    def written(out: Path, files: object) -> None:
        with full_disk(-1):
            stock(out, files)  # type: ignore[arg-type]

    monkeypatch.setattr(pieces, "_write", written)
    out, data = tmp_path / "e.tar", {"vllm/a.so": os.urandom(50_000)}
    with full_disk(10_000), pytest.raises(OSError) as raised:
        pieces.pack_parts(out, "tree", data.items(), 20_000)
    assert raised.value.filename == f"{out}.001"
    assert [*tmp_path.iterdir()] == []


def test_a_bundle_on_a_full_disk_and_then_on_one_with_room(
    planned: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle.tree, "planned", lambda *args: planned)
    monkeypatch.setattr(bundle, "load_manifest", lambda path: None)
    monkeypatch.setattr(bundle, "TREES", tmp_path / "trees")
    monkeypatch.setattr(wheels, "fetch", lambda *args: [])
    plan = tree.at_commit(Repository.find(planned.path), planned, tmp_path / "trees")
    monkeypatch.setattr(bundle.tree, "at_commit", lambda *args: plan)
    out = tmp_path / "out"
    assert bundle.main(["--out", str(out)]) == 0
    whole = {path.name for path in out.iterdir()}
    with full_disk(3000), pytest.raises(SeriesError, match=r"/out/\S+: ") as raised:
        bundle.main(["--out", str(out)])
    assert raised.value.hint.endswith("Or name another place with --out.")
    # What is there already is not named by an index; nothing there is cut.
    assert "bundle.json" not in {path.name for path in out.iterdir()}
    assert {path.name for path in out.iterdir()} < whole
    for name in ("tree.tar.xz", "run.py", "bundle.json"):
        (out / f".{name}.0123456789abcdef.part").write_text("of a killed run")
    assert bundle.main(["--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == whole


def test_an_archive_in_parts_is_put_together(tmp_path: Path) -> None:
    data = {"vllm/a.so": os.urandom(50_000), "vllm/b.so": b"small"}
    parts = pieces.pack_parts(tmp_path / "e.tar.xz", "tree", data.items(), 20_000)
    assert [part.file for part in parts] == [f"e.tar.xz.00{n}" for n in (1, 2, 3)]
    assert all(part.size <= 20_000 for part in parts)
    assert {path.name for path in tmp_path.iterdir()} == {p.file for p in parts}
    described = {"pieces": [vars(part) for part in parts]}
    paths = unpacking.found(described, tmp_path, tmp_path)
    folder = unpacking.unpack(described, paths, tmp_path / "there", {"cuda": None})
    for name, wanted in data.items():
        assert (folder / "tree" / name).read_bytes() == wanted
    (whole,) = pieces.pack_parts(tmp_path / "w.tar.xz", "tree", data.items())
    assert whole.file == "w.tar.xz"


def test_archives_unpacked_at_once_may_share_folders(tmp_path: Path) -> None:
    parts, wanted = [], set()
    for n in range(8):
        names = [f"vllm/{folder}/deep/{n}.so" for folder in range(200)]
        wanted |= {f"tree/{name}" for name in names}
        data = [(name, b"") for name in names]
        parts.append(pieces.pack(tmp_path / f"e{n}.tar", "tree", data))
    described = {"pieces": [vars(part) for part in parts]}
    paths = unpacking.found(described, tmp_path, tmp_path)
    folder = unpacking.unpack(described, paths, tmp_path / "there", {"cuda": None})
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*.so")}
    assert found == wanted


ASKED = {"torch": "2.11", "cuda": "13", "modules": [], "op": "op", "wheel": ""}
FITS = {"torch": "2.11.0+cu130", "cuda": "13.0", "cxx11_abi": True}


@pytest.mark.parametrize(
    ("facts", "machine", "said"),
    [
        ({}, "x86_64", None),
        ({"torch": "2.13.1a0"}, "x86_64", None),
        ({"torch": "3.0"}, "x86_64", None),
        ({"torch": "2.9.1+cu130"}, "x86_64", "need torch 2.11, this is 2.9.1"),
        ({"cuda": "12.8"}, "x86_64", "for CUDA 13, this has CUDA 12.8"),
        ({"cuda": None}, "x86_64", "for CUDA 13, this has no CUDA"),
        ({"cxx11_abi": False}, "x86_64", "C\\+\\+11"),
        ({}, "aarch64", "for x86_64, this is aarch64"),
    ],
)
def test_where_the_extensions_fit(facts: dict, machine: str, said: str | None) -> None:
    reasons = fitting.unfit(ASKED, {**FITS, **facts}, machine)
    assert (reasons == []) == (said is None)
    if said is not None:
        assert re.search(said, reasons[0])


def test_a_bundle_with_the_engine(
    made: tuple[Path, list], planned: Plan, tmp_path: Path
) -> None:
    files = {
        "vllm/_C_stable_libtorch.abi3.so": b"c" * 3000,
        "vllm/spinloop.abi3.so": b"s",
        "vllm/attn/_fa3_C.abi3.so": b"f",
    }
    found = Extensions("0" * 64, "2.11", "13", files)
    out = tmp_path / "with engine"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle, "LARGE", 2000)
        written = build(planned, out, found)
    assert [piece.file for piece in written][-2:] == [
        "ext-C_stable_libtorch.tar.xz",
        "ext-small.tar.xz",
    ]
    index = json.loads((out / "bundle.json").read_text())
    assert index["extensions"] == {
        "wheel": "0" * 64,
        "torch": "2.11",
        "cuda": "13",
        "op": "fused_gdn_decode_post_conv_mtp",
        "modules": ["vllm._C_stable_libtorch", "vllm.spinloop", "vllm.attn._fa3_C"],
    }
    assert {"anthropic", "xgrammar", "scipy"} <= set(index["needs"])
    (out / "bundle.json").write_text(json.dumps({**index, "needs": []}))
    into = tmp_path / "there"
    done = carried(out, "unpack", "--into", str(into))
    assert done.returncode == 0, done.stderr
    (folder,) = into.iterdir()
    for tree_name in ("tree", "stock"):
        for name, data in files.items():
            assert (folder / tree_name / name).read_bytes() == data
        # A stand-in beside the extension would hide that it does not load.
        assert not (folder / tree_name / "vllm/_C_stable_libtorch.py").exists()


def test_decode_says_what_it_lacks(made: tuple[Path, list]) -> None:
    out, _ = made
    index = json.loads((out / "bundle.json").read_text())
    into = str(out.parent / "there")
    done = carried(out, "decode", "gdn", "--into", into)
    assert done.returncode == 1
    assert "no engine: make it again with ARGS=--engine" in done.stderr
    index |= {"needs": [], "extensions": {**ASKED, "torch": "2.12"}}
    (out / "bundle.json").write_text(json.dumps(index))
    done = carried(out, "decode", "gdn", "--into", into)
    assert done.returncode == 1
    assert "they need torch 2.12, this is 2.11.0" in done.stderr
    assert carried(out, "decode", "--into", into).returncode == 2
    index["extensions"] = ASKED
    (out / "bundle.json").write_text(json.dumps(index))
    done = carried(out, "decode", "gdn", "--into", into)
    assert done.returncode == 1
    assert "torch sees no GPU" in done.stderr


def test_extensions_that_do_not_load_are_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "torch.py").write_text(
        "from types import SimpleNamespace as S\nops = S(_C=S(op=1))\n"
    )
    (tmp_path / "fine.py").write_text("")
    (tmp_path / "broken.py").write_text("raise ImportError('undefined symbol: x')")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    described = {"extensions": {**ASKED, "modules": ["fine", "broken"]}}
    with pytest.raises(unpacking.BundleError, match="undefined symbol: x"):
        fitting.load_extensions(tmp_path, described, env)
    described["extensions"]["modules"] = ["fine"]
    described["extensions"]["op"] = "another"
    with pytest.raises(unpacking.BundleError, match="has no another"):
        fitting.load_extensions(tmp_path, described, env)
    described["extensions"]["op"] = "op"
    fitting.load_extensions(tmp_path, described, env)
    assert "1 extensions load, op is there" in capsys.readouterr().out
    (tmp_path / "fine.py").write_text("raise ImportError")
    fitting.load_extensions(tmp_path, described, env)


def test_the_command_takes_the_commit_and_says_so(
    planned: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    (planned.path / "vllm/dot.py").write_text("edited = 1\n")
    dirty = Plan(**{**vars(planned), "dirty": True})
    monkeypatch.setattr(bundle.tree, "planned", lambda *args: dirty)
    monkeypatch.setattr(bundle, "load_manifest", lambda path: None)
    monkeypatch.setattr(bundle, "TREES", tmp_path / "trees")
    monkeypatch.setattr(wheels, "fetch", lambda *args: [])
    out = tmp_path / "out"
    assert bundle.main(["--out", str(out)]) == 0
    with tarfile.open(out / "tree.tar.xz") as opened:
        member = opened.extractfile("vllm/dot.py")
        assert member is not None
        assert b"edited" not in member.read()
    said = capsys.readouterr().out
    assert "changes that are not committed stay out" in said
    assert f"rocm-series at {planned.commit[:12]}" in said


def test_the_default_list_is_of_a_machine_with_torch() -> None:
    have = wheels.listed((bundle.REQUIREMENTS / "bare-cuda13.txt").read_text())
    needs = bundle.required(False)
    lacking = wheels.lacking(needs, have | {"torch", "triton"})
    assert {"torch", "triton", "numpy", "pytest"} <= have
    assert {"msgspec", "pydantic-core"} <= set(lacking)


def test_the_op_is_not_built_where_the_release_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []
    monkeypatch.setattr(bare, "prepare", lambda folder, op: asked.append(op))
    monkeypatch.setattr(bare, "missing", lambda *_: ())
    monkeypatch.setattr(fitting, "check_python", lambda _: None)
    monkeypatch.setattr(fitting, "torch_facts", lambda: {**FITS, "hip": None})
    monkeypatch.setattr(unpacking, "found", lambda *_: {})
    monkeypatch.setattr(unpacking, "unpack", lambda *_: tmp_path)
    options, _ = bare.parsed(["unpack", "--op"])
    bare.run(options, {"extensions": None}, [])
    bare.run(options, {"extensions": ASKED}, [])
    assert asked == [True, False]
