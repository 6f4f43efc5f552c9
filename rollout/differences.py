"""How stacks differ in what their definition says: the values in force, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stacks.problems import escaped, shortened
from stacks.stack import Definition, Stack

LONGEST = 60
_TAGS = ("kind", "mode", "cloud")
_NOTHING = "–"


@dataclass(frozen=True)
class Difference:
    """One value that differs between two stacks."""

    path: str
    old: str
    new: str

    def __str__(self) -> str:
        """`proxy.replicas 1 → autoscaled 3–12`."""
        return f"{self.path} {self.old} → {self.new}"


def pairs(definition: Definition) -> list[tuple[str, Stack, Stack]]:
    """Return which stacks to compare, and what the comparison is called.

    The first environment's first stack with every other environment's, then each environment's with its further ones.
    """
    stacks: dict[str, list[Stack]] = {}
    order = [environment.name for environment in definition.header.environments]
    for stack in sorted(definition.stacks, key=lambda stack: order.index(stack.environment.name)):
        stacks.setdefault(stack.environment.name, []).append(stack)
    first, *others = [found[0] for found in stacks.values()]
    between = [(f"{first.environment.name} → {other.environment.name}", first, other) for other in others]
    within = [(f"{one[0].name} → {other.name}", one[0], other) for one in stacks.values() for other in one[1:]]
    return between + within


def differences(one: Stack, other: Stack) -> list[Difference]:
    """Return every value in which two stacks differ, in the order of the definition."""
    return [Difference(path, old, new) for path, old, new in _walk(_tree(one), _tree(other), "")]


def _tree(stack: Stack) -> dict[str, Any]:
    head = stack.environment.model_dump(by_alias=True, include={"production", "local", "labels", "annotations"})
    return {"namespace": stack.namespace, **head, **stack.platform.model_dump(by_alias=True)}


def _walk(old: Any, new: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping) and not _of_different_kinds(old, new):
        yield from _walk_mappings(old, new, path)
    elif isinstance(old, Sequence) and isinstance(new, Sequence) and _named(old) and _named(new):
        before, after = ({item["name"]: item for item in items} for items in (old, new))
        for name in {**before, **after}:
            yield from _walk(before.get(name), after.get(name), f"{path}.{name}")
        if before == after:
            yield f"{path} (order)", words(list(before)), words(list(after))
    else:
        yield path, words(old), words(new)


def _walk_mappings(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    scaled = {"replicas", "autoscaling"} <= old.keys() & new.keys()
    for key in {**old, **new}:
        inside = f"{path}.{key}" if path else key
        if key == "replicas" and scaled:
            if (before := _scaling(old)) != (after := _scaling(new)):
                yield inside, before, after
            if old["autoscaling"] and new["autoscaling"]:
                below, above = ({**item["autoscaling"], "min": 0, "max": 0} for item in (old, new))
                yield from _walk(below, above, f"{path}.autoscaling")
        elif not (key == "autoscaling" and scaled):
            yield from _walk(old.get(key), new.get(key), inside)


def _scaling(part: Mapping[str, Any]) -> str:
    if bounds := part["autoscaling"]:
        return f"autoscaled {bounds['min']}–{bounds['max']}"
    return "default" if part["replicas"] is None else str(part["replicas"])


def _of_different_kinds(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return any(tag in old and tag in new and old[tag] != new[tag] for tag in _TAGS)


def _named(items: Sequence[Any]) -> bool:
    return not isinstance(items, str) and all(isinstance(item, Mapping) and "name" in item for item in items)


def words(value: Any) -> str:
    """Return a value in a few words: what is not set is left out, and the kind of a thing comes first."""
    return escaped(shortened(_words(value), LONGEST))


def _words(value: Any) -> str:
    if value is None or value == () or value == [] or value == {}:
        return _NOTHING
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        tag = next((str(value[tag]) for tag in (*_TAGS, "name") if tag in value), "")
        rest = [
            f"{key} {_words(item)}"
            for key, item in value.items()
            if key not in (*_TAGS, "name") and item not in (None, (), {}, [])
        ]
        return f"{tag} ({', '.join(rest)})" if tag and rest else tag or ", ".join(rest)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_words(item) for item in value)}]"
    return str(value)
