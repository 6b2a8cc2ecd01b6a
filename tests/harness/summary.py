# SPDX-License-Identifier: Apache-2.0
"""The closing lines of a run, and whether it may be called a success."""

from collections import Counter
from collections.abc import Sequence

from tests.harness.plan import Patch, Plan
from tests.harness.suite import Part

_NOTHING_COLLECTED = 5


def _files(patch: Patch) -> list[str]:
    return [test.split("::", 1)[0] for test in patch.tests]


def launches(parts: Sequence[Part]) -> Counter[str]:
    """Launches by kernel, over all parts."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part.report.get("launches", {}))
    return total


def outcomes(parts: Sequence[Part], files: Sequence[str]) -> Counter[str]:
    """How many cases of those files passed, failed, were skipped."""
    found: Counter[str] = Counter()
    for part in parts:
        for case, outcome in part.report.get("outcomes", {}).items():
            path = case.split("::", 1)[0]
            # A case is named from pytest's own root, which may lie further in.
            if any(file == path or file.endswith(f"/{path}") for file in files):
                found[outcome] += 1
    return found


def problems(plan: Plan, parts: Sequence[Part], narrowed: bool) -> list[str]:
    """Why the run is no success; empty when it is one.

    Args:
        narrowed: The user passed pytest arguments, so that not all of it had to run.
    """
    found = []
    for part in parts:
        if part.code == _NOTHING_COLLECTED and narrowed:
            continue
        if part.code:
            found.append(f"{part.name}: {part.closing or f'pytest ended {part.code}'}")
    reported = [part for part in parts if part.report]
    if not reported:
        return [*found, "no test of the patched tree ran"]
    if narrowed:
        cases = [list(part.report["outcomes"].values()) for part in reported]
        if not any("passed" in case for case in cases):
            found.append("no test of the patched tree passed")
        return found
    ran = launches(parts)
    for patch in plan.patches:
        if patch.tests and not outcomes(parts, _files(patch))["passed"]:
            found.append(f"{patch.name}: none of its tests passed, so nothing is shown")
        if patch.kernels and not any(ran[kernel] for kernel in patch.kernels):
            names = ", ".join(patch.kernels)
            found.append(f"{patch.name}: none of its kernels ran: {names}")
    return found


def _counted(entries: Counter[str]) -> list[str]:
    return [f"{count} x {text}" for text, count in entries.most_common()]


def _field(name: str, values: Sequence[str]) -> list[str]:
    shown = list(values) or ["none"]
    return [f"  {name:<11}{shown[0]}", *(f"  {'':<11}{more}" for more in shown[1:])]


def _tree(plan: Plan) -> str:
    state = ", with changes not committed" if plan.dirty else ""
    return f"{plan.path} ({plan.branch} at {plan.commit[:12]}{state})"


def _kernels(plan: Plan, parts: Sequence[Part]) -> list[str]:
    ran = launches(parts)
    of: dict[str, list[str]] = {}
    for patch in plan.patches:
        for kernel in patch.kernels:
            of.setdefault(kernel, []).append(patch.name[:4])
    lines = []
    for kernel, patches in of.items():
        count = f"{ran[kernel]} launches" if ran[kernel] else "did not run"
        lines.append(f"{kernel.rsplit('.', 1)[-1]} ({', '.join(patches)}): {count}")
    others = sum(count for kernel, count in ran.items() if kernel not in of)
    if others:
        lines.append(f"upstream's own kernels: {others} launches")
    return lines


def _device(report: dict) -> str:
    supplied = report["compute_units"]
    if supplied is None:
        return f"{report['device']} ({report['platform']})"
    return f"{report['device']} (compute units: {supplied}, supplied by the harness)"


def lines(plan: Plan, parts: Sequence[Part]) -> list[str]:
    """The closing lines: what was tested, where, what ran, what did not and why."""
    reports = [part.report for part in parts if part.report]
    out = ["", "What was tested", *_field("tree", [_tree(plan)])]
    if reports:
        first = reports[0]
        version = f"{first['python']}, torch {first['torch']}, triton {first['triton']}"
        out += _field("python", [version])
        out += _field("device", [_device(first)])
        stubs = {name for report in reports for name in report["stubs"]}
        built = {path for report in reports for path in report["extensions"]}
        absent = [f"{name}: not built, an empty stand-in" for name in sorted(stubs)]
        out += _field("extensions", [*sorted(built), *absent])
        out += _field("kernels", _kernels(plan, parts))
        for patch in plan.patches:
            found = outcomes(parts, _files(patch))
            text = ", ".join(f"{found[kind]} {kind}" for kind in sorted(found))
            out += _field(f"patch {patch.name[:4]}", [text or "no test ran"])
        skips = Counter(text for r in reports for text in r["reasons"].values())
        out += _field("skipped", _counted(skips))
        absent_cases = Counter(t for r in reports for t in r["left_out"].values())
        out += _field("left out", _counted(absent_cases))
    width = max((len(part.name) for part in parts), default=0)
    out += ["", *(f"{part.name:<{width}}  {part.closing}" for part in parts)]
    return out
