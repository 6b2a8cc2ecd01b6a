# SPDX-License-Identifier: Apache-2.0
"""The words of a submission: the body in upstream's template, and what to run first."""

import re
from dataclasses import dataclass

from .carry import Source, Step
from .errors import SeriesError
from .linters import Lint, summary
from .manifest import ChangeSet
from .records import Evidence, lines_of

TEMPLATE = ".github/PULL_REQUEST_TEMPLATE.md"
UPSTREAM = "vllm-project/vllm"
_SECTIONS = ("Overview", "Claims", "Validation", "Details")
AI = (
    "AI assistance was used: Claude wrote the code, the tests and this text. The "
    "submitter has to have reviewed every line and run the tests before this is sent."
)


class TemplateError(SeriesError):
    """Upstream's template has another shape than this tool can fill."""


@dataclass(frozen=True)
class Facts:
    """What a submission is made of.

    Args:
        change: The change set.
        sources: Its patches.
        steps: What became of each on the base.
        base: The name of the base.
        evidence: Recorded measurements.
        lints: Upstream's linters on the changed files.
        tests: Tests that the patches name.
        refusals: Why this would have been refused, where --anyway was given.
    """

    change: ChangeSet
    sources: list[Source]
    steps: list[Step]
    base: str
    evidence: Evidence
    lints: list[Lint]
    tests: list[str]
    refusals: list[str]


def title_of(facts: Facts) -> str:
    """That of a lone patch, else the brackets of the first and the change set's."""
    if len(facts.sources) == 1:
        return facts.sources[0].patch.title
    brackets = re.match(r"(\[[^\]]*\]\s*)*", facts.sources[0].patch.title)
    return f"{brackets[0] if brackets else ''}{facts.change.title}"


def body_of(template: str, facts: Facts) -> str:
    """Upstream's template, each section filled from what is recorded.

    Raises:
        TemplateError: A section is missing.
    """
    texts = {
        "Overview": _overview(facts),
        "Claims": _claims(facts),
        "Validation": _validation(facts),
        "Details": _details(facts),
    }
    body = template
    for name in _SECTIONS:
        pattern = rf"(?m)^## {name}\n+(<!--.*?-->\n?)?"
        body, count = re.subn(pattern, _filled(name, texts[name]), body, count=1)
        if count != 1:
            raise TemplateError(
                f"{TEMPLATE} has no section {name}.",
                "Upstream has changed its template: adapt series/submit_text.py.",
            )
    return body.replace("- [ ] AI assistance was used", "- [x] AI assistance was used")


def _filled(name: str, text: str) -> str:
    # A replacement text: backslashes would be groups.
    return f"## {name}\n\n{text}\n".replace("\\", "\\\\")


def _overview(facts: Facts) -> str:
    return f"{facts.change.title}."


def _claims(facts: Facts) -> str:
    return "\n".join(f"- {source.patch.purpose}" for source in facts.sources)


def _validation(facts: Facts) -> str:
    lines = ["Recorded measurements:", ""]
    for record in facts.evidence.current:
        lines += lines_of(record)
    if not facts.evidence.current:
        lines.append("- none: not measured")
    for name in facts.evidence.stale:
        lines.append(f"- `{name}` is of an earlier form of the patches: not quoted")
    lines += [f"- {what}: not measured" for what in facts.evidence.missing]
    lines += ["", "Tests that come with it or cover it:", ""]
    lines += [f"- `pytest {test}`" for test in facts.tests] or ["- none"]
    lines += ["", "Upstream's linters on the changed files:", ""]
    lines += [f"- {line}" for line in summary(facts.lints)] or ["- not run"]
    return "\n".join(lines)


def _details(facts: Facts) -> str:
    parts = []
    for source in facts.sources:
        _, _, text = source.mail.message.partition("\n")
        kept = [line for line in text.strip().split("\n") if not _is_trailer(line)]
        parts.append("\n".join([f"### {source.patch.title}", "", *kept]).rstrip())
    lines = ["### Why this duplicates nothing", ""]
    lines += [f"- {r.url} ({r.state}): {r.how}" for r in facts.change.related]
    lines += [f"- In the way, and sent all the same: {why}" for why in facts.refusals]
    if not facts.change.related and not facts.refusals:
        lines.append("- no related public change is recorded")
    return "\n\n".join([*parts, "\n".join(lines), f"### AI assistance\n\n{AI}"])


def _is_trailer(line: str) -> bool:
    return bool(re.match(r"(?i)(signed-off-by|co-authored-by):", line))


def checklist(facts: Facts) -> list[str]:
    """What a person runs and reads before it is sent."""
    words = " ".join(re.sub(r"[^A-Za-z0-9 ]", " ", facts.change.title).split()[:6])
    files = sorted({path for source in facts.sources for path in source.mail.paths})
    lines = [
        f"gh pr list --repo {UPSTREAM} --state open --search '{words}'",
        *(
            f"gh pr list --repo {UPSTREAM} --state open --search '{name}'"
            for name in _names(files)[:3]
        ),
    ]
    for related in facts.change.related:
        lines.append(f"{_view(related.url)}  # recorded as {related.state}")
    if url := facts.change.upstream.url:
        lines.append(f"{_view(url)}  # recorded as {facts.change.upstream.state}")
    return lines


def _names(files: list[str]) -> list[str]:
    stems = [file.rsplit("/", 1)[-1].rsplit(".", 1)[0] for file in files]
    names = [stem for stem in dict.fromkeys(stems) if not stem.startswith("test_")]
    return [name for name in names if "_" in name]


def _view(url: str) -> str:
    kind = "issue" if "/issues/" in url else "pr"
    match = re.search(r"github\.com/([^/]+/[^/]+)/(?:pull|issues)/(\d+)", url)
    return f"gh {kind} view {match[2]} --repo {match[1]}" if match else f"open {url}"


def cover_of(facts: Facts, body: str) -> tuple[str, str]:
    """Subject and text of the cover letter."""
    states = [f"{s.file[:4]} {s.state} on {facts.base}" for s in facts.steps]
    return title_of(facts), "\n".join([body.strip(), "", *states])
