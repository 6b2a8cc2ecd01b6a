# SPDX-License-Identifier: Apache-2.0
"""Starts vLLM's own command line, after writing down which vLLM this process has.

    python -P start_server.py FACTS [words for vllm]

Runs in the interpreter of an arm, with nothing of this repository on its path. The
facts tell who answers on a port: the process itself says which tree it imported.
"""

import contextlib
import ctypes
import hashlib
import importlib.metadata
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

TREE_FACTS = ".series-arm.json"
FOLDERS = ("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT")
"""Paths of one machine, kept apart from what decides the answers."""
SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ends this process when the one that started it is killed; Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def blob(path: Path) -> str:
    """git's id of a file, empty if it is not there."""
    if not path.is_file():
        return ""
    data = path.read_bytes()
    head = b"blob %d\0" % len(data)
    return hashlib.sha1(head + data, usedforsecurity=False).hexdigest()


def version_of(name: str) -> str:
    """The version of a distribution, empty if there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def tree_facts(tree: Path) -> dict[str, Any]:
    """What the tree says it is, and its files as they are now."""
    try:
        said = json.loads((tree / TREE_FACTS).read_text(encoding="utf-8"))
    except OSError:
        return {"patch_ids": [], "commit": "", "changed": []}
    files = said.pop("files", {})
    said["changed"] = sorted(
        name for name, recorded in files.items() if blob(tree / name) != recorded
    )
    return dict(said)


def facts() -> dict[str, Any]:
    """Which vLLM this process imported, and what the tree round it is."""
    import vllm

    module = Path(str(vllm.__file__)).resolve()
    ours = {k: v for k, v in os.environ.items() if k.startswith("VLLM_")}
    folders = {k: v for k, v in ours.items() if k in FOLDERS}
    settings = {k: v for k, v in ours.items() if k not in FOLDERS}
    for name in settings:
        if any(word in name for word in SECRET):
            settings[name] = "set"
    return {
        "pid": os.getpid(),
        "python": sys.executable,
        "module": str(module),
        "version": version_of("vllm"),
        "torch": version_of("torch"),
        "settings": settings,
        "folders": folders,
        **tree_facts(module.parent.parent),
    }


def main() -> None:
    """Writes the facts and hands over."""
    target, *words = sys.argv[1:]
    die_with_parent()
    text = json.dumps(facts())
    aside = Path(target + ".part")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, target)
    sys.argv = ["vllm", *words]
    from vllm.entrypoints.cli.main import main as vllm_main

    vllm_main()


# An engine that is spawned imports this file again.
if __name__ == "__main__":
    main()
