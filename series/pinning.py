# SPDX-License-Identifier: Apache-2.0
"""series.toml with another pin: the old pin becomes one of the other releases."""

import re
import tomllib

from .manifest import Manifest, ManifestError, Pin

_RELEASE = re.compile(r"\[\[\s*release\s*\]\]")
_PIN = re.compile(r"\[\s*pin\s*[\].]")


def repinned_text(text: str, manifest: Manifest, pin: Pin) -> str:
    """series.toml with another [pin]; every other table keeps its bytes.

    Args:
        text: The file as it is.
        manifest: The same, read.
        pin: The new pin.

    Raises:
        ManifestError: The file is laid out in a way that cannot be updated.
    """
    done: list[str] = []
    placed = False
    for section in re.split(r"(?m)^(?=\[)", text):
        if _PIN.match(section):
            if not placed:
                done.append(_pin_table(pin))
                placed = True
        elif _RELEASE.match(section) and _tag_of(section) == pin.tag:
            done.append(_release_table(manifest.pin))
        else:
            done.append(section)
    result = "".join(done)
    if not any(_tag_of(s) == manifest.pin.tag for s in done if _RELEASE.match(s)):
        at = next((n for n, s in enumerate(done) if _RELEASE.match(s)), None)
        at = at if at is not None else _after_series(done)
        done.insert(at, _release_table(manifest.pin))
        result = "".join(done)
    _require_read(result, manifest, pin)
    return result


def _tag_of(section: str) -> str:
    match = re.search(r'(?m)^\s*tag\s*=\s*"([^"]*)"', section)
    return match[1] if match else ""


def _after_series(sections: list[str]) -> int:
    for number, section in enumerate(sections):
        if re.match(r"\[\s*series\s*\]", section):
            return number + 1
    return len(sections)


def _pin_table(pin: Pin) -> str:
    return f"""[pin]
{_facts(pin)}
[pin.sdist]
filename = "{pin.sdist.filename}"
size = {pin.sdist.size}
sha256 = "{pin.sdist.sha256}"

"""


def _release_table(pin: Pin) -> str:
    sdist = pin.sdist
    inline = f'filename = "{sdist.filename}", size = {sdist.size}, sha256 = '
    return f"""[[release]]
{_facts(pin)}sdist = {{ {inline}"{sdist.sha256}" }}

"""


def _facts(pin: Pin) -> str:
    date = pin.date.isoformat().replace("+00:00", "Z")
    generated = ", ".join(f'"{path}"' for path in pin.generated)
    return f"""release = "{pin.release}"
tag = "{pin.tag}"
commit = "{pin.commit}"
tree = "{pin.tree}"
date = {date}
generated = [{generated}]
"""


def _require_read(text: str, manifest: Manifest, pin: Pin) -> None:
    try:
        data = tomllib.loads(text)
        pins = [Pin.model_validate(table) for table in data.get("release", [])]
        right = Pin.model_validate(data["pin"]) == pin
    except (ValueError, KeyError):
        right, pins = False, []
    wanted = {p.tag for p in [manifest.pin, *manifest.release]} - {pin.tag}
    if not right or {p.tag for p in pins} != wanted:
        raise ManifestError(
            f"{manifest.path.name} is laid out in a way that cannot be updated.",
            "Give [pin], [pin.sdist] and each [[release]] a section of its own.",
        )
