"""Findings of several stacks as one text: what is alike is said once."""

from collections.abc import Mapping, Sequence

from .findings import Finding, counted, printable


def report(found: Mapping[str, Sequence[Finding]], most: int | None = None) -> str:
    """Return the findings, those of one rule together, the most severe first; of each rule at most so many lines."""
    stacks: dict[Finding, list[str]] = {}
    for stack, findings in found.items():
        for each in findings:
            stacks.setdefault(each, []).append(stack)
    groups: dict[tuple[str, ...], list[str]] = {}
    order = ("mandatory", "advisory", "waived")
    for each in sorted(stacks, key=lambda one: order.index(one.severity)):
        first, *rest = str(each).split("\n")
        where = printable(", ".join(name for name in stacks[each] if name))
        groups.setdefault(tuple(rest), []).append(f"{where}: {first}" if where else first)
    return "\n".join("\n".join([*_shortened(lines, most), *rest]) for rest, lines in groups.items())


def summary(found: Mapping[str, Sequence[Finding]]) -> str:
    """Return `2 mandatory findings, 1 advisory`, or an empty text for none; what two stacks have alike counts once."""
    return counted(dict.fromkeys(each for findings in found.values() for each in findings))


def _shortened(lines: list[str], most: int | None) -> list[str]:
    if most is None or len(lines) <= most:
        return lines
    return [*lines[:most], f"… and {len(lines) - most} more like these"]
