"""Which versions Triton serves of those that are there."""

from collections.abc import Iterator
from typing import Any

from ....findings import Finding, error, warning
from ..entry import Entry


def served(entry: Entry) -> tuple[int, ...]:
    """Return the versions of an entry that its own version policy has Triton serve, ascending."""
    if entry.config is None or not entry.config.HasField("version_policy"):
        return entry.versions[-1:]  # the newest
    policy = entry.config.version_policy
    match policy.WhichOneof("policy_choice"):
        case "specific":
            return tuple(version for version in entry.versions if version in policy.specific.versions)
        case "latest":
            return entry.versions[-policy.latest.num_versions :] if policy.latest.num_versions else ()
        case _:  # all, and none of them chosen
            return entry.versions


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield what is wrong with the version policy."""
    where = entry.where("version_policy")
    policy = config.version_policy
    match policy.WhichOneof("policy_choice"):
        case None if config.HasField("version_policy"):
            yield warning(
                "the version policy is empty", where, "Triton then serves all versions", "choose one, or take it out"
            )
        case "latest" if policy.latest.num_versions == 0:
            yield error("no version is served", where, "it is the latest 0 versions", "write num_versions: 1 or more")
        case "specific" if not policy.specific.versions:
            yield error("no version is served", where, "no version is specified", "write versions: [ 1 ]")
        case "specific":
            missing = [str(version) for version in policy.specific.versions if version not in entry.versions]
            if len(missing) == len(policy.specific.versions):
                yield error(f"no version is served: {_those(missing)} not there", entry.where(_SPECIFIC), do=_FOLDER)
            elif missing:
                yield warning(
                    f"{_those(missing)} not there", entry.where(_SPECIFIC), "Triton serves the others", _FOLDER
                )


_SPECIFIC = "version_policy.specific.versions"
_FOLDER = "name versions whose folders are there, or leave the policy out: deploying a model writes it"


def _those(missing: list[str]) -> str:
    return f"version{'s' if len(missing) > 1 else ''} {', '.join(missing)} {'are' if len(missing) > 1 else 'is'}"
