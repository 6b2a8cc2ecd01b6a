# SPDX-License-Identifier: Apache-2.0
"""Packs the patched tree for a GPU machine without vLLM or network: `make bundle`.

The folder that comes out holds pieces of at most 60 MiB, bundle.json with the sha256 of
each, and run.py, which needs Python alone: `python3 run.py test`, then `bench`. With
--engine it also brings the compiled extensions of the release's CUDA wheel and all of
vLLM's requirements, for `run.py decode` and `run.py ab`.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import cli, extensions, wheels  # noqa: E402
from evals.extensions import Extensions  # noqa: E402
from evals.pieces import Piece, pack, pack_parts, split  # noqa: E402
from series.git import Repository  # noqa: E402
from series.manifest import load_manifest  # noqa: E402
from tests.harness import tree  # noqa: E402
from tests.harness.plan import Plan  # noqa: E402

PYTHON = "3.12"
LARGE = 40_000_000
"""Bytes of an extension that travels in a piece of its own."""
TREES = ROOT / "build/test/trees"
REQUIREMENTS = ROOT / "requirements"
TREE_FILES = (
    "vllm/**/*.py",
    "vllm/**/*.jinja",
    "vllm/model_executor/layers/fused_moe/configs/*H200*.json",
    "tests/**/*.py",
    "benchmarks/kernels/**/*.py",
    "pyproject.toml",
)
OP_FILES = ("csrc/gdn/*", "csrc/**/*.h", "csrc/**/*.cuh")
RUNNER_FILES = ("run.py", "unpacking.py", "fitting.py")
HARNESS_FILES = (
    "tests/__init__.py",
    "tests/harness/*.py",
    "tests/patched/**/*.py",
    "tests/patched/*.toml",
    "tests/patched/pytest.ini",
    "evals/*.py",
    "evals/gdn_op/*",
    "series/__init__.py",
    "series/errors.py",
    "series/locks.py",
    "series/output.py",
    "series/writing.py",
)
# Of the harness, what asks git has no use on the machine.
_HERE_ONLY = ("tests/harness/tree.py", "tests/harness/ready.py")


def contents(root: Path, patterns: Iterable[str]) -> dict[str, bytes]:
    """The files below root that match, by their path from it."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for pattern in patterns
        for path in root.glob(pattern)
        if path.is_file() and "__pycache__" not in path.parts
    }


def source_pieces(plan: Plan, out: Path) -> list[Piece]:
    """The tree, its CUDA op's sources, and the harness that runs its tests."""
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {plan.version}\n"
    python = contents(plan.path, TREE_FILES)
    python[f"vllm-{plan.version}.dist-info/METADATA"] = metadata.encode()
    harness = contents(ROOT, HARNESS_FILES)
    for name in _HERE_ONLY:
        harness.pop(name, None)
    harness["plan.json"] = plan.dump().encode()
    return [
        pack(out / "tree.tar.xz", "tree", python.items()),
        pack(out / "op.tar.xz", "tree", contents(plan.path, OP_FILES).items()),
        pack(out / "harness.tar.xz", ".", harness.items()),
    ]


def stock_files(repo: Repository, plan: Plan) -> tuple[dict[str, bytes], list[str]]:
    """What the release has instead of what the patches change.

    Returns:
        The release's files by path, and the paths that only the patched tree has.
    """
    base = f"{plan.commit}~{len(plan.patches)}"
    words = ["diff-tree", "-r", "--name-only", "--no-renames", "-z", base, plan.commit]
    changed = [path for path in repo.git(*words).decode().split("\0") if path]
    carried = contents(plan.path, TREE_FILES)
    files, added = {}, []
    for path in changed:
        if repo.resolve(f"{base}:{path}") is None:
            added.append(path)
        elif path in carried:
            files[path] = repo.git("cat-file", "blob", f"{base}:{path}")
    return files, added


def wheel_pieces(have: str, engine: bool, out: Path, cache: Path) -> list[Piece]:
    """The wheels that the machine lacks, for kernels or for all of vLLM."""
    pins = required(engine)
    # torch and triton are the machine's own: the measurements are of them.
    there = wheels.listed(have) | {"torch", "triton"}
    wanted = [pins[name] for name in wheels.lacking(pins, there)]
    if not wanted:
        return []
    print(f"fetching {len(wanted)} wheels for Python {PYTHON} with pip", flush=True)
    found = wheels.fetch(wanted, PYTHON, cache)
    groups = split((path.name, path.read_bytes()) for path in found)
    return [
        pack(out / f"wheels-{number}.tar", "wheels", group)
        for number, group in enumerate(groups, 1)
    ]


def required(engine: bool) -> dict[str, str]:
    """Name to pinned requirement of all that the machine must have."""
    pins: dict[str, str] = {}
    for source in ("test.txt" if engine else "kernels.txt", "measure.txt"):
        text = (REQUIREMENTS / source).read_text(encoding="utf-8")
        pins |= wheels.pins(text, PYTHON)
    return pins


def extension_pieces(found: Extensions, out: Path) -> list[Piece]:
    """The compiled extensions: each large one by itself, the small ones together."""
    groups: dict[str, dict[str, bytes]] = {}
    for name, data in found.files.items():
        short = name.rsplit("/", 1)[-1].removesuffix(".abi3.so").strip("_")
        group = short if len(data) > LARGE else "small"
        groups.setdefault(group, {})[name] = data
    pieces = []
    for group, files in groups.items():
        size = sum(map(len, files.values())) / 1e6
        print(f"compressing {group}, {size:.0f} MB", flush=True)
        pieces += pack_parts(out / f"ext-{group}.tar.xz", "tree", files.items())
    return pieces


def build(
    repo: Repository, plan: Plan, have: str, found: Extensions | None, out: Path
) -> list[Piece]:
    """Writes the whole bundle; bundle.json comes last and names only whole pieces.

    Args:
        repo: Where the plan's commit is.
        plan: The patched tree.
        have: The machine's list of packages.
        found: The extensions, where the engine is to run too.
        out: The bundle's folder.
    """
    engine = found is not None
    out.mkdir(parents=True, exist_ok=True)
    index = out / "bundle.json"
    index.unlink(missing_ok=True)
    # Of a run that was killed, what it had not finished too.
    cut = [f".{name}.*.part" for name in ("bundle.json", *RUNNER_FILES)]
    for pattern in ["*.tar", "*.tar.*", *cut]:
        for stale in out.glob(pattern):
            stale.unlink(missing_ok=True)
    stock, added = stock_files(repo, plan)
    pieces = source_pieces(plan, out)
    pieces.append(pack(out / "stock.tar.xz", "stock", stock.items()))
    cache = ROOT / "build/wheels" / ("engine" if engine else "kernels")
    pieces += wheel_pieces(have, engine, out, cache)
    if found is not None:
        pieces += extension_pieces(found, out)
    for name in RUNNER_FILES:
        text = (ROOT / "evals/bare" / name).read_text(encoding="utf-8")
        cli.write_text(out / name, text)
    described = {
        "version": plan.version,
        "commit": plan.commit,
        "python": PYTHON,
        "needs": sorted(required(engine)),
        "added": added,
        "extensions": found.asked() if found else None,
        "pieces": [vars(piece) for piece in pieces],
    }
    text = json.dumps(described, indent=1, sort_keys=True) + "\n"
    cli.write_text(index, text)
    return pieces


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="evals/bundle.py", allow_abbrev=False)
    parser.add_argument("--vllm", type=Path, help="a clone with the series branch")
    parser.add_argument("--out", type=Path, default=ROOT / "build/bundle")
    parser.add_argument(
        "--have",
        type=Path,
        default=REQUIREMENTS / "bare-cuda13.txt",
        help="what the machine has: pip list, as text or JSON",
    )
    parser.add_argument(
        "--engine",
        action="store_true",
        help="bring all of vLLM's requirements and the release's compiled extensions",
    )
    parser.add_argument(
        "--archive", type=Path, help="the release's wheel, instead of fetching it"
    )
    options = parser.parse_args(argv)
    manifest = load_manifest(ROOT / "patches/series.toml")
    plan = tree.planned(ROOT, options.vllm, manifest, TREES)
    repo = Repository.find(options.vllm or plan.path)
    if plan.dirty:
        print("changes that are not committed stay out of the bundle")
    plan = tree.at_commit(repo, plan, TREES)
    have = options.have.read_text(encoding="utf-8")
    found = None
    if options.engine:
        found = extensions.of_release(
            REQUIREMENTS / "engine.toml",
            plan.version,
            plan.path,
            partial(print, flush=True),
            options.archive,
        )
    with cli.writes_to(options.out):
        pieces = build(repo, plan, have, found, options.out)
    for piece in pieces:
        print(f"{piece.file:<32}{piece.size / 1e6:>8.1f} MB  {piece.sha256[:16]}")
    total = sum(piece.size for piece in pieces) / 1e6
    print(f"{options.out}: {plan.branch} at {plan.commit[:12]}, {total:.1f} MB.")
    print(f"On the machine: python3 {options.out.name}/run.py test")
    return 0


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
