"""Generates the config.pbtxt of a published model: its owner's, with the served versions and the aliases.

Pure functions. Triton has one configuration for all versions of a model. The owner is the version whose entry it
comes from.
"""

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from google.protobuf import text_format
from tidegate_contracts import triton
from tidegate_contracts.manifest import ENTRY_VERSION
from tritonclient.grpc import model_config_pb2

from ...errors import UsageError
from ...repository import Published
from ..entries.text import leaves

CONFIG: Final = "config.pbtxt"
NOT_READY: Final = "is not at ready state"
PREFIX: Final = "tidegate."
_HEAD: Final = "# Published by tidegate, with the configuration of version {}. Edits here are lost.\n"
"""The first line. It is a comment, because Triton reloads every version if anything else changes."""
_OWNER: Final = re.compile(re.escape(_HEAD).replace(r"\{\}", "([1-9][0-9]{0,17})"))
_NEVER: Final = 10**18  # larger than any version's number
_OF_NOTHING: Final = """
platform: "ensemble"
input { name: "IN" data_type: TYPE_BOOL dims: 1 }
output { name: "OUT" data_type: TYPE_BOOL dims: 1 }
ensemble_scheduling { step {
  model_name: "nothing: tidegate took it out"  model_version: -1
  input_map { key: "IN" value: "IN" }  output_map { key: "OUT" value: "OUT" }
} }
"""
_MODEL_FOLDERS: Final = ("$$TRITON_MODEL_DIRECTORY/", f"{triton.REPOSITORY_ROOT}/{{}}/")
"""Prefixes of the model's directory in parameters: the Python backend's, and TensorRT-LLM's."""


def published_config(
    entry_config: str, *, model: str, owner: int, served: Collection[int], aliases: Mapping[str, int]
) -> str:
    """Return the text of config.pbtxt. The same arguments give the same text.

    `entry_config` is that of the version `owner`. Only a comment names the owner: otherwise Triton would reload every
    version. Raises UsageError if it cannot be parsed, or if an alias has a version that is not served.
    """
    if not served:
        raise UsageError(f"model {model} would serve no version", do="remove the model instead")
    for alias, version in aliases.items():
        if version not in served:
            raise UsageError(f"alias {alias} of model {model} is version {version}, which is not served")
    config = _parse(entry_config)
    config.name = model
    config.version_policy.Clear()
    config.version_policy.specific.versions.extend(sorted(set(served)))
    agents = config.model_repository_agents.agents
    for agent in [each for each in agents if each.name == "checksum"]:
        agents.remove(agent)  # Tidegate verifies all files, and rewrites config.pbtxt.
    for output in config.output:
        if output.label_filename:
            output.label_filename = _in_model_folder(output.label_filename, owner)
    for key in list(config.parameters):
        value = config.parameters[key].string_value
        if key.startswith(PREFIX):
            del config.parameters[key]
            continue
        for folder in (each.format(model) for each in _MODEL_FOLDERS):
            if value.startswith(folder):
                config.parameters[key].string_value = folder + _in_model_folder(value.removeprefix(folder), owner)
    for alias, version in aliases.items():
        config.parameters[triton.ALIAS_PARAMETER + alias].string_value = str(version)
    return _HEAD.format(owner) + text_format.MessageToString(config, as_utf8=True)


def _in_model_folder(path: str, owner: int) -> str:
    first, slash, rest = path.partition("/")
    return f"{owner}{slash}{rest}" if first == ENTRY_VERSION else path


def closed_config(config: str) -> str:
    """Return the configuration without an existing version, under which Triton loads nothing of the model."""
    return _without_versions(_parse(config), config)


def withdrawn_config(config: str) -> str:
    """Return the configuration that makes Triton unload the model: an ensemble of models that do not exist.

    A polling Triton unloads a model with an existing directory only under such a configuration. The directory must
    stay, because its files may be being loaded.
    """
    withdrawn = _parse(_OF_NOTHING)
    with suppress(UsageError):
        withdrawn.name = _parse(config).name
    return _without_versions(withdrawn, config)


def _without_versions(of: Any, config: str) -> str:
    """Return a configuration without an existing version, with the owner of another text."""
    of.version_policy.specific.versions[:] = [_NEVER]
    head = found[0] if (found := _OWNER.match(config)) else ""
    return head + text_format.MessageToString(of, as_utf8=True)


def read_published(text: str) -> Published:
    """Parse a configuration. Raises UsageError if Triton's protobuf cannot read it."""
    config = _parse(text)
    start = triton.ALIAS_PARAMETER
    texts = {key: each.string_value for key, each in sorted(config.parameters.items()) if key.startswith(start)}
    aliases = {key.removeprefix(start): int(text) for key, text in texts.items() if text.isascii() and text.isdigit()}
    served = sorted(set(config.version_policy.specific.versions) - {_NEVER})
    standing = {name: number for name, number in aliases.items() if number in served}
    owner = _OWNER.match(text)
    return Published(int(owner[1]) if owner else None, tuple(served), standing)


def loaded_at_once(one: str | None, other: str) -> int:
    """Return how many versions are in memory at one time while one configuration replaces the other."""
    after = set(read_published(other).served)
    before = set(read_published(one).served) if one is not None else set()
    if one is not None and all(each.startswith("version_policy") for each in config_differences(one, other)):
        return len(before | after)
    return len(before) + len(after)


def config_differences(one: str, other: str) -> list[str]:
    """Return the differences in meaning, one field per line, such as `input[0].dims[0]: 3 → 4`."""
    before, after = dict(leaves(_parse(one))), dict(leaves(_parse(other)))
    return [
        f"{path}: {before.get(path, 'nothing')} → {after.get(path, 'nothing')}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]


def _parse(text: str) -> Any:
    config: Any = model_config_pb2.ModelConfig()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        raise UsageError(f"{CONFIG} cannot be read: {error}", do="run `tidegate model check` for details") from None
    return config
