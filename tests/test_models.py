# SPDX-License-Identifier: Apache-2.0
"""The small models: made once, whole or not at all."""

import sys
from pathlib import Path

import pytest

from evals import models
from evals.models import ModelError

PYTHON = Path(sys.executable)
SCRIPT = """
import sys
from pathlib import Path
folder, source = Path(sys.argv[1]), sys.argv[2]
with open({log!r}, "a") as log:
    print(source, file=log)
(folder / "config.json").write_text(source)
{more}
(folder / "weights").write_text("all of them")
"""


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Scripts of the test's own; `log` in the same folder has a line a call."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    monkeypatch.setattr(models, "SCRIPTS", folder)
    write(folder)
    return folder


def write(folder: Path, more: str = "") -> None:
    text = SCRIPT.format(log=str(folder / "log"), more=more)
    for name in ("smollm2.py", "tiny_moe.py"):
        (folder / name).write_text(text)


def calls(scripts: Path) -> list[str]:
    log = scripts / "log"
    return log.read_text().splitlines() if log.exists() else []


def make(tmp_path: Path, said, digest: str = "d1") -> Path:
    return models.smollm2(tmp_path / "kept", PYTHON, Path("/a.whl"), digest, said)


def test_a_model_is_made_once(scripts: Path, tmp_path: Path, said) -> None:
    path = make(tmp_path, said)
    assert path == tmp_path / "kept" / models.SMOLLM2
    assert (path / "config.json").read_text() == "/a.whl"
    assert len(said.lines) == 1
    assert make(tmp_path, said) == path
    assert calls(scripts) == ["/a.whl"]
    moe = models.tiny_moe(tmp_path / "kept", PYTHON, Path("/tree"), "0.32.0", said)
    assert (moe / "config.json").read_text() == "/tree/docs"


def test_another_source_or_script_makes_it_anew(
    scripts: Path, tmp_path: Path, said
) -> None:
    make(tmp_path, said)
    make(tmp_path, said, "d2")
    assert len(calls(scripts)) == 2
    write(scripts, "# changed")
    make(tmp_path, said, "d2")
    assert len(calls(scripts)) == 3


@pytest.mark.parametrize("more", ["sys.exit('no memory')", "raise OSError('no disk')"])
def test_a_failure_leaves_the_old_one_and_says_why(
    scripts: Path, tmp_path: Path, said, more: str
) -> None:
    path = make(tmp_path, said)
    write(scripts, more)
    with pytest.raises(ModelError, match=r"no memory|no disk") as caught:
        make(tmp_path, said)
    assert "smollm2.py ended with 1" in caught.value.what
    assert (path / "weights").read_text() == "all of them"
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == [
        models.SMOLLM2,
        f"{models.SMOLLM2}.log",
    ]
    write(scripts)
    assert make(tmp_path, said) == path


def test_an_interrupt_leaves_nothing_half_made(
    scripts: Path, tmp_path: Path, said, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = models._run

    def interrupted(words: list[str], log: Path) -> None:
        real(words, log)
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, said)
    assert [p.name for p in (tmp_path / "kept").iterdir()] == [f"{models.SMOLLM2}.log"]
    monkeypatch.setattr(models, "_run", real)
    assert (make(tmp_path, said) / "weights").exists()
