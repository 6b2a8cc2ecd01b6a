# SPDX-License-Identifier: Apache-2.0
"""Runs a bundle on the machine it was carried to; needs Python and its torch alone.

    python3 run.py unpack              check everything, unpack, say what is missing
    python3 run.py test [--op] [-- …]  the patched tree's kernel tests on the GPU
    python3 run.py bench [NAME] [--op] [-- …]
                                       gdn, or one of the tree's kernel benchmarks

Nothing is installed into the machine's Python. --op builds the tree's CUDA op first, so
that it is compared with. What follows -- goes to pytest or to the benchmark.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STAND_IN = "vllm/_C_stable_libtorch.py"


class BundleError(Exception):
    """What is wrong, and what to do about it."""


def load_index() -> dict:
    """bundle.json, once every piece it names is there with the right bytes."""
    index = HERE / "bundle.json"
    if not index.exists():
        raise BundleError(f"{index} is missing: make bundle did not finish.")
    described = json.loads(index.read_text(encoding="utf-8"))
    for piece in described["pieces"]:
        path = HERE / piece["file"]
        if not path.exists():
            raise BundleError(f"{path} is missing: copy it beside run.py.")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != piece["sha256"]:
            raise BundleError(
                f"{path} is damaged: its sha256 is {digest}. Copy it anew."
            )
    return described


def torch_facts() -> dict:
    """What this Python's torch is; raises where there is none."""
    try:
        import torch
    except ImportError as error:
        raise BundleError(
            f"{sys.executable} has no torch ({error}): use the Python that has."
        ) from error
    return {
        "torch": torch.__version__,
        "hip": torch.version.hip,
        "cuda": torch.version.cuda,
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "",
        "cxx11_abi": torch.compiled_with_cxx11_abi(),
    }


def check_python(described: dict) -> None:
    """The wheels are for one Python version; others cannot load them."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if running != described["python"]:
        raise BundleError(
            f"This is Python {running}; the bundle's wheels are for "
            f"{described['python']}. Run it with python{described['python']}."
        )


def unpack(described: dict, into: Path | None, facts: dict) -> Path:
    """Unpacks everything into one folder, once; it gets its name when it is whole."""
    text = json.dumps(described, sort_keys=True).encode()
    name = "vllm-rocm-series-" + hashlib.sha256(text).hexdigest()[:12]
    target = (into or Path(tempfile.gettempdir())) / name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=name, dir=target.parent))
    try:
        for piece in described["pieces"]:
            folder = aside / piece["into"]
            with tarfile.open(HERE / piece["file"]) as archive:
                archive.extractall(folder, filter="data")
        if (aside / "wheels").exists():
            install(aside)
        if facts["cuda"]:
            # vLLM's CUDA platform cannot start without a module of that name.
            (aside / "tree" / STAND_IN).touch()
        os.replace(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def install(folder: Path) -> None:
    """Unpacks the wheels into a folder of their own, without a network."""
    wheels = sorted(map(str, (folder / "wheels").glob("*.whl")))
    call = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index"]
    call += ["--no-deps", "--no-compile", "--no-cache-dir"]
    call += ["--target", str(folder / "site"), *wheels]
    done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"pip could not unpack the wheels: {done.stderr.strip()}")


def build_op(folder: Path) -> Path:
    """Builds the CUDA op into the folder, once."""
    out = folder / "gdn_op.so"
    if not out.exists():
        print("building the CUDA op, about half a minute", flush=True)
        script = folder / "evals/gdn_op/build.py"
        aside = out.with_suffix(".part")
        call = [sys.executable, str(script), str(folder / "tree"), str(aside)]
        if subprocess.run(call).returncode:
            raise BundleError(
                "the CUDA op did not build; leave --op out to go without."
            )
        os.replace(aside, out)
    return out


def prepare(folder: Path, op: bool) -> None:
    """Sets this process's module path and variables for what it starts."""
    user_path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(folder / "site"), user_path])
    )
    sys.path.insert(0, str(folder))
    if op:
        os.environ["SERIES_HARNESS_OP"] = str(build_op(folder))


def missing(folder: Path, described: dict) -> tuple[str, ...]:
    """What neither this Python nor the bundle has."""
    from tests.harness import environment

    return environment.probe(sys.executable, described["needs"]).missing


def run_tests(folder: Path, args: list[str]) -> int:
    """The kernel tests of the tree, with the closing lines of `make test`."""
    from tests.harness import environment, plan, summary, treerun

    text = (folder / "plan.json").read_text(encoding="utf-8")
    planned = plan.load(text, folder / "tree")
    found = environment.probe(sys.executable, [])
    parts = treerun.run(planned, found, folder, folder / "cache", args)
    failed = summary.problems(planned, parts, narrowed=bool(args))
    print("\n".join(summary.lines(planned, parts)), flush=True)
    for problem in failed:
        print(f"failed: {problem}", file=sys.stderr)
    return 1 if failed else 0


def run_bench(folder: Path, name: str, args: list[str]) -> int:
    """evals/NAME.py, or else the tree's kernel benchmark of that name."""
    from tests.harness import environment, treerun

    script = folder / "tree/benchmarks/kernels" / f"{name}.py"
    if name == "gdn":
        script = folder / "evals/gdn.py"
        op = os.environ.get("SERIES_HARNESS_OP")
        args = [*(["--op", op] if op else []), *args]
    if not script.exists():
        there = sorted(path.stem for path in script.parent.glob("bench_*.py"))
        raise BundleError(f"no benchmark {name}; there are: {', '.join(there)}")
    found = environment.probe(sys.executable, [])
    if not found.gpu:
        raise BundleError("torch sees no GPU: there is nothing to measure.")
    version = json.loads((folder / "plan.json").read_text())["version"]
    cache = folder / "cache"
    paths = [folder / "tree", treerun.metadata_folder(cache, version)]
    env = environment.variables(found, paths, cache, [])
    call = [sys.executable, str(script), *args]
    return subprocess.run(call, cwd=folder / "tree", env=env).returncode


def main(argv: list[str]) -> int:
    """Runs a subcommand; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("command", choices=["unpack", "test", "bench"])
    parser.add_argument("name", nargs="?", default="bench_tiny_dot")
    parser.add_argument(
        "--into", type=Path, help="a folder; a temporary one if left out"
    )
    parser.add_argument("--op", action="store_true", help="build the CUDA op first")
    at = argv.index("--") if "--" in argv else len(argv)
    own, rest = argv[:at], argv[at + 1 :]
    options = parser.parse_args(own)
    described = load_index()
    check_python(described)
    facts = torch_facts()
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    folder = unpack(described, options.into, facts)
    prepare(folder, options.op)
    lacking = missing(folder, described)
    if lacking:
        raise BundleError(
            f"{sys.executable} lacks {', '.join(lacking)}, and so does the bundle: "
            "make it again with --have and this machine's own pip list."
        )
    print(f"unpacked in {folder}", flush=True)
    if options.command == "test":
        return run_tests(folder, rest)
    if options.command == "bench":
        return run_bench(folder, options.name, rest)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BundleError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
