"""Checks the layout of a directory: the configuration, the served versions, and files that Triton ignores."""

import re
from collections.abc import Iterator
from typing import Any

from tidegate_contracts.manifest import BESIDE, is_inside

from ....findings import Finding, error, warning
from ..entry import NO_VERSIONS, Entry, is_mistaken_for_a_version, is_version
from ..text import CONFIG

_PADDED = re.compile(r"0[0-9]+")
_SPECIFIC = "version_policy.specific.versions"
_FOLDER = "list versions whose directories exist, or remove the policy: a deployment writes it"
_MODELS = (".onnx", ".plan", ".pt", ".pt2")
_LITTER = (".ds_store", "thumbs.db", "__pycache__", ".ipynb_checkpoints", ".git")


def served(entry: Entry) -> tuple[int, ...]:
    """Return the versions of an entry that its version policy serves, ascending."""
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


def check(entry: Entry) -> Iterator[Finding]:
    """Yield findings about the entry's name, directories and files."""
    yield from _name(entry)
    yield from _config_files(entry)
    yield from _versions(entry)
    yield from _rest(entry)


def _name(entry: Entry) -> Iterator[Finding]:
    if not is_inside(entry.name) or "/" in entry.name:
        yield error(f"'{entry.name}' is not a valid name of a model", ".", do="use letters, digits, '_', '-' and '.'")
    elif entry.config is not None and entry.config.name not in ("", entry.name):
        what = f"the model's name is '{entry.config.name}', but its directory is '{entry.name}'"
        do = f'write name: "{entry.name}", remove the line, or rename the directory'
        yield error(what, entry.where("name"), "Triton requires both to be the same", do)


def _config_files(entry: Entry) -> Iterator[Finding]:
    for file in entry.files:
        folder, _, name = file.path.rpartition("/")
        if f"/{BESIDE}/" in file.path:
            continue
        if name == CONFIG and folder and folder.split("/")[0] != "configs":
            what = f"Triton never reads a {CONFIG} here"
            do = "remove it" if entry.text else f"move it up, to {entry.name}/{CONFIG}"
            yield warning(what, file.path, f"it reads the one next to the version directory, {entry.name}/{CONFIG}", do)
        elif name != CONFIG and name.endswith(".pbtxt") and not folder and name.startswith("config"):
            yield warning(f"Triton reads only {CONFIG}", file.path, do=f"rename it to {CONFIG}, or remove it")
        elif folder == "configs" and name.endswith(".pbtxt"):
            what = "Triton reads this instead of config.pbtxt only when it is started with --model-config-name"
            yield warning(what, file.path, "the platform does not set this option")
    if entry.text is None and not any(problem.where.startswith(CONFIG) for problem in entry.problems):
        why = "Triton guesses: it uses the inputs, outputs and batches that the backend finds in the model, if it can"
        paths = [file.path for file in entry.files]
        deep = [path for path in paths if re.fullmatch(r"\d+/(config\.json|[^/]+\.safetensors)", path)]
        if deep and not any(re.match(r"\d+/model\.(?!safetensors)", path) for path in paths):
            what = "this looks like a language model whose files are one directory too deep"
            why = f"there is no {CONFIG}"
            do = f"move them up into {entry.name}, or name the directory with the files. Triton needs a {CONFIG}"
            yield error(what, deep[0], why, do)
        else:
            yield warning(f"there is no {CONFIG}", CONFIG, why, "create one with `tidegate model new`")


def _versions(entry: Entry) -> Iterator[Finding]:
    for name in entry.folders:
        if is_mistaken_for_a_version(name):
            what = f"Triton treats the directory '{name}' as a version"
            why = "it reads the number at the start, does not find the directory of that number, and hangs or crashes"
            yield error(what, name, why, "rename it so that it starts with a letter, or move it out of the entry")
        elif _PADDED.fullmatch(name):
            do = f"rename it to {int(name)}"
            yield warning(f"Triton ignores the version '{name}'", name, "its name starts with 0", do)
    if not entry.versions:
        top = [file.path for file in entry.files if "/" not in file.path]
        lost = [path for path in top if path.startswith("model.") or path.endswith(_MODELS)]
        why = "a model's files must be in a directory with a number, such as 1/"
        do = "create the directory 1/, and move the model into it"
        if lost:
            why, do = f"{', '.join(lost[:3])} must be in a version directory", f"move {lost[0]} to 1/{lost[0]}"
        yield error("there is no version", ".", why, do)
    elif len(entry.versions) > 1 and not entry.is_published:
        numbers = ", ".join(map(str, entry.versions))
        what = f"there are {len(entry.versions)} versions ({numbers})"
        why = "the registry numbers the versions, and a registered entry has exactly one"
        yield warning(what, ".", why, "keep one version, and register the others separately")


def _rest(entry: Entry) -> Iterator[Finding]:
    named = [each.string_value for each in entry.config.parameters.values()] if entry.config else []
    for name in entry.folders:
        is_number = is_version(name) or _PADDED.fullmatch(name) or is_mistaken_for_a_version(name)
        is_named = any(f"/{name}" in each for each in named)
        if not (is_number or is_named or name in NO_VERSIONS or name.lower() in _LITTER):
            do = "move the model's files into its version directory"
            yield warning(f"Triton ignores the directory '{name}'", name, "it is not a version", do)
    for file in entry.files:
        steps = file.path.lower().split("/")
        if litter := next((step for step in steps if step in _LITTER), None):
            yield warning(f"'{litter}' does not belong to a model", file.path, "it would be registered", "delete it")


def check_policy(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield findings about the version policy."""
    where, policy = "version_policy", config.version_policy
    match policy.WhichOneof("policy_choice"):
        case None if config.HasField("version_policy"):
            what = "the version policy is empty"
            yield warning(what, where, "Triton then serves all versions", "choose one, or remove it")
        case "latest" if policy.latest.num_versions == 0:
            yield error("no version is served", where, "the policy is the latest 0 versions", "write num_versions: 1")
        case "specific" if not policy.specific.versions:
            yield error("no version is served", where, "no version is specified", "write versions: [ 1 ]")
        case "specific":
            missing = [str(version) for version in policy.specific.versions if version not in entry.versions]
            if len(missing) == len(policy.specific.versions):
                yield error(f"no version is served: {_those(missing)} missing", _SPECIFIC, do=_FOLDER)
            elif missing:
                yield warning(f"{_those(missing)} missing", _SPECIFIC, "Triton serves the others", _FOLDER)


def _those(missing: list[str]) -> str:
    return f"version{'s' if len(missing) > 1 else ''} {', '.join(missing)} {'are' if len(missing) > 1 else 'is'}"
