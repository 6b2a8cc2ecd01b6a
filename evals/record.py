# SPDX-License-Identifier: Apache-2.0
"""Records of measurements, each tied to the patches that it is about.

    python -m evals.record add gdn-h200 raw.json
    python -m evals.record list

A record holds the command, the patch ids (git patch-id --stable) of the patches that
touch the measured files, the base, the machine, and every raw sample. It is refused
where the measured files are not those that the series has; it is stale once a patch id
changes. evals/results/NAME.json is the only place where a figure lives.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from evals import cli  # noqa: E402
from evals import machine as machine_facts  # noqa: E402
from series.errors import Exit, SeriesError  # noqa: E402
from series.git import make_repository  # noqa: E402
from series.manifest import Manifest, load_manifest  # noqa: E402

RESULTS = ROOT / "evals/results"
MANIFEST = ROOT / "patches/series.toml"
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_KEYS = ("name", "kind", "command", "date", "base", "patches", "files", "machine")

Record = dict[str, Any]


class RecordError(SeriesError):
    """A record is missing, damaged, or not of this series."""


@dataclass(frozen=True)
class Series:
    """What the patches are now.

    Attributes:
        base: The pinned release, its commit and the tree of the whole series on it.
        ids: Patch id by patch file, in order.
        touched: Files that each patch changes, by patch file.
        files: The blob that each changed file is after the whole series.
    """

    base: dict[str, str]
    ids: dict[str, str]
    touched: dict[str, list[str]]
    files: dict[str, str]

    def about(self, files: Mapping[str, str]) -> dict[str, str]:
        """Patch ids of the patches that touch any of the files."""
        return {
            patch: self.ids[patch]
            for patch, changed in self.touched.items()
            if set(changed) & set(files)
        }


def images(diff: str) -> dict[str, str]:
    """The blob that each file of a diff becomes; of deleted files nothing."""
    found, blob = {}, ""
    for line in diff.splitlines():
        if match := re.match(r"index [0-9a-f]{40}\.\.([0-9a-f]{40})", line):
            blob = match[1]
        elif line.startswith("+++ b/"):
            found[line.removeprefix("+++ b/").rstrip("\t")] = blob
    return found


def read_series(manifest: Manifest) -> Series:
    """Reads the patches and asks git for their ids."""
    ids: dict[str, str] = {}
    touched: dict[str, list[str]] = {}
    files: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        repo = make_repository(Path(folder))
        for path in manifest.files:
            data = path.read_bytes()
            ids[path.name] = repo.git("patch-id", "--stable", stdin=data)[:40].decode()
            found = images(data.decode("utf-8", "replace"))
            touched[path.name] = list(found)
            files |= found
    base = {
        "release": manifest.pin.release,
        "commit": manifest.pin.commit,
        "tree": manifest.series.tree,
    }
    return Series(base, ids, touched, files)


def current() -> Series:
    """The series of this repository."""
    return read_series(load_manifest(MANIFEST))


def write(
    name: str,
    kind: str,
    command: Sequence[str],
    machine: Mapping[str, Any],
    files: Mapping[str, str],
    data: Mapping[str, Any],
    *,
    date: str = "",
    series: Series | None = None,
    results: Path = RESULTS,
) -> Path:
    """Writes a record and returns its path.

    Args:
        name: Of the record, as a file name.
        kind: What made it; decides how it is shown.
        command: The words that made it. In all that is kept, of an absolute path
            only the last part is.
        machine: Device, driver and versions.
        files: The blobs of the files that were measured.
        data: All samples, and what was derived from them.
        date: When it was measured, ISO 8601; now if left out.
        series: What the patches are; this repository's if left out.
        results: The folder of records.

    Raises:
        RecordError: A measured file is not what the series makes of it.
    """
    if not _NAME.fullmatch(name):
        raise RecordError(f"{name!r} is no name: small letters, digits, - and . only.")
    series = series or current()
    for file, blob in files.items():
        expected = series.files.get(file)
        if expected != blob:
            has = expected[:12] if expected else "no such change"
            raise RecordError(
                f"{name}: the measured {file} is {blob[:12]}, the series has {has}.",
                "Measure the tree that `make apply` makes, or export it first.",
            )
    record = {
        "name": name,
        "kind": kind,
        "command": machine_facts.portable(command),
        "date": date or machine_facts.now(),
        "base": series.base,
        "patches": series.about(files),
        "files": dict(files),
        "machine": machine_facts.portable(machine),
        "data": machine_facts.portable(data),
    }
    path = results / f"{name}.json"
    cli.write_json(path, record)
    return path


def load(name: str, results: Path = RESULTS) -> Record:
    """Reads one record.

    Raises:
        RecordError: It is not there, or is damaged.
    """
    path = results / f"{name}.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordError(
            f"there is no record {path.name}.", f"In {results}."
        ) from error
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}.", "Record it anew.") from error
    if not isinstance(record, dict):
        raise RecordError(f"{path} is no record: no JSON object.", "Record it anew.")
    missing = [key for key in (*_KEYS, "data") if key not in record]
    missing = missing or [*misshapen(record)]
    if missing or record["name"] != name:
        raise RecordError(f"{path} is no record: {', '.join(missing) or 'its name'}.")
    return record


def misshapen(found: Mapping[str, Any]) -> Iterator[str]:
    """Keys of a record, or of what a bench wrote, that hold something else."""

    def texts(value: Any) -> bool:
        values = value.values() if isinstance(value, dict) else value
        return isinstance(value, dict | list) and all(
            isinstance(one, str) for one in values
        )

    for key in ("command", "void", "sources", "files", "patches", "base"):
        kind = list if key in ("command", "void") else dict
        value = found.get(key, kind())
        if not (isinstance(value, kind) and texts(value)):
            yield key
    for key in ("machine", "data"):
        if not isinstance(found.get(key, {}), dict):
            yield key
    for key in ("kind", "bench", "date"):
        if not isinstance(found.get(key, ""), str):
            yield key


def load_all(results: Path = RESULTS) -> list[Record]:
    """Every record, by name."""
    return [load(path.stem, results) for path in sorted(results.glob("*.json"))]


def stale(record: Record, series: Series) -> list[str]:
    """Why a record no longer shows the series; empty where it does."""
    reasons = []
    for patch, before in record["patches"].items():
        now = series.ids.get(patch)
        # A file name may change with the subject; the patch is the same.
        if before not in series.ids.values():
            what = "is gone" if now is None else "has changed"
            reasons.append(f"{patch[:4]} {what}")
    if reasons and record["files"]:
        kept = all(series.files.get(f) == blob for f, blob in record["files"].items())
        if kept:
            reasons.append("the measured files are the same")
    if record["base"]["commit"] != series.base["commit"]:
        reasons.append(f"it is on {record['base']['release']}")
    return reasons


def add(name: str, raw: Path) -> Path:
    """Makes a record of what a bench wrote on some machine."""
    try:
        data = json.loads(raw.read_text(encoding="utf-8"))
        wrong = ", ".join(misshapen(data))
        kind, command = data.pop("bench"), data.pop("command")
        machine, files = data.pop("machine"), data.pop("sources")
    except OSError as error:
        raise RecordError(f"{raw} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        # Of what cannot be decoded the message would hold all of it.
        why = "no text" if isinstance(error, UnicodeError) else repr(error)
        what = f"{raw} is not what a bench writes: {why}."
        raise RecordError(what, "Give the file of its --json.") from error
    if wrong:
        what = f"{raw} is not what a bench writes: {wrong}."
        raise RecordError(what, "Give the file of its --json.")
    if data.get("void"):
        raise RecordError(f"{raw}: the run is void: {'; '.join(data['void'])}.")
    path = RESULTS / f"{name}.json"
    if path.is_file() and (there := load(name)["kind"]) != kind:
        raise RecordError(
            f"{path} is a record of {there}, {raw} is one of {kind}.",
            "Give it another name.",
        )
    date = data.pop("date", "")
    return write(name, kind, command, machine, files, data, date=date)


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="evals.record", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add", help="keep what a bench wrote with --json")
    adding.add_argument("name")
    adding.add_argument("raw", type=Path)
    commands.add_parser("list", help="every record, and whether it is stale")
    args = parser.parse_args(argv)
    if args.command == "add":
        print(f"recorded in {add(args.name, args.raw)}")
        return Exit.DONE
    series = current()
    rows = [
        [
            record["name"],
            record["date"][:10],
            str(record["machine"].get("device", "")),
            ", ".join(patch[:4] for patch in record["patches"]),
            "stale: " + "; ".join(why) if (why := stale(record, series)) else "current",
        ]
        for record in load_all()
    ]
    cli.show("records", ["name", "date", "device", "patches", "state"], rows)
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(cli.guarded(main, sys.argv[1:]))
