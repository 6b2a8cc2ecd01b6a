# SPDX-License-Identifier: Apache-2.0
"""A tree whose `vllm` is the fake server, with a bench and a script that obey."""

import json
import sys
from pathlib import Path
from typing import Any

from evals.proof import Arm

SERVER = Path(__file__).with_name("fake_server.py")
_MAIN = """\
import json, os, pathlib, runpy, sys, time, urllib.request

TREE = pathlib.Path(__file__).resolve().parents[3]
SERVER = {server!r}

def after(name):
    return sys.argv[sys.argv.index(name) + 1]

def main():
    said = json.loads((TREE / "fake.json").read_text())
    if sys.argv[1] == "serve":
        words = ["--port", after("--port"), "--log", str(TREE / "asked.jsonl")]
        sys.argv = [SERVER, *words, *said["serve"]]
        runpy.run_path(SERVER, run_name="__main__")
    else:
        assert sys.argv[1:3] == ["bench", "serve"], sys.argv
        (TREE / "bench.jsonl").open("a").write(json.dumps(sys.argv) + "\\n")
        if said["bench"].pop("asks", False):
            body = json.dumps({{"model": "m", "prompt": "1?"}}).encode()
            url = after("--base-url") + "/v1/completions"
            try:
                urllib.request.urlopen(urllib.request.Request(url, body))
            except OSError:
                time.sleep(60)
        asked = int(after("--num-prompts"))
        found = {{"completed": asked, "failed": 0, "duration": 1.5}}
        found |= {{f"median_{{name}}_ms": 2.0 for name in ("itl", "tpot", "ttft")}}
        found |= said["bench"]
        folder = pathlib.Path(after("--result-dir"))
        (folder / after("--result-filename")).write_text(json.dumps(found))

if __name__ == "__main__":
    main()
"""
_SCRIPT = """\
import json, os, pathlib, sys, time

TREE = pathlib.Path(__file__).resolve().parents[3]

def after(name):
    return sys.argv[sys.argv.index(name) + 1]

said = json.loads((TREE / "fake.json").read_text())["script"]
inbox = pathlib.Path(os.environ["TMPDIR"])
rows = (inbox / "test.jsonl").read_text().splitlines()
assert (inbox / "train.jsonl").exists()
(TREE / "script.jsonl").open("a").write(json.dumps(sys.argv[1:]) + "\\n")
print(said.get("prints", ""))
time.sleep(said.get("sleeps", 0))
count = min(int(after("--num-questions")), len(rows))
found = {"accuracy": said.get("accuracy", 0.9), "invalid_rate": 0.0}
found |= {"num_questions": count, "total_output_tokens": 7 * count, "latency": 1.0}
if said.get("writes", True):
    pathlib.Path(after("--save-results")).write_text(json.dumps(found))
sys.exit(said.get("rc", 0))
"""


def told(tree: Path, **said: Any) -> None:
    """Sets what the tree's programs do: serve, bench and script."""
    known = {"serve": [], "bench": {}, "script": {}}
    (tree / "fake.json").write_text(json.dumps({**known, **said}))


def fake_arm(folder: Path, name: str, **said: Any) -> Arm:
    """An arm with such a tree; a patched one has two patches."""
    tree = folder / "trees" / name
    main = tree / "vllm/entrypoints/cli/main.py"
    main.parent.mkdir(parents=True)
    for package in ("vllm", "vllm/entrypoints", "vllm/entrypoints/cli"):
        (tree / package / "__init__.py").touch()
    main.write_text(_MAIN.format(server=str(SERVER)))
    script = tree / "tests/evals/gsm8k/gsm8k_eval.py"
    (script.parent / "configs").mkdir(parents=True)
    script.write_text(_SCRIPT)
    told(tree, **said)
    ids = ("a" * 40, "b" * 40) if name == "patched" else ()
    facts = {"patch_ids": list(ids), "commit": "c" * 40, "files": {}}
    (tree / ".series-arm.json").write_text(json.dumps(facts))
    return Arm(name, tree, Path(sys.executable), ids)


def lines(arm: Arm, name: str) -> list[Any]:
    """What a program of the tree wrote down: asked, bench or script."""
    path = arm.tree / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
