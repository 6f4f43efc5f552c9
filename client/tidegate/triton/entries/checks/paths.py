"""Checks every path in a configuration, resolved like in Triton and its backends.

Triton's JoinPath treats an absolute path as relative to the directory (filesystem/api.cc of core). Only a label file
must stay within the model (model.cc). The Python backend replaces $$TRITON_MODEL_DIRECTORY by the model's directory,
and takes an archive or a directory with bin/activate (python_be.cc, pb_env.cc and stub_launcher.cc).
"""

import posixpath
import re
from collections.abc import Iterator
from hashlib import file_digest
from math import prod
from typing import Any, Final

from tidegate_contracts.triton import REPOSITORY_ROOT

from ....findings import Finding, error, warning
from ..entry import Entry
from ..text import leaves
from ..words import closest
from .backends import resolved
from .layout import served

ENVIRONMENT: Final = "EXECUTION_ENV_PATH"
_HERE: Final = "$$TRITON_MODEL_DIRECTORY"
_TOKENIZER: Final = "tokenizer_dir"  # or a name on Hugging Face
_ON_THE_SERVER: Final = {
    "tensorrtllm": ("gpt_model_path", "encoder_model_path", "engine_dir", _TOKENIZER),
    "onnxruntime": ("trt_engine_cache_path",),
}
"""Parameters with absolute paths of files on the server."""
_TEMPLATE: Final = re.compile(r"\$\{\w*\}")
_CAPABILITY: Final = re.compile(r"[1-9][0-9]?\.[0-9]")
_TEXT_BYTES: Final = 16 << 20


def below(folder: str, path: str) -> str | None:
    """Resolve a path, relative to a directory of the entry. None if it leads out of the entry."""
    found = posixpath.normpath(f"./{folder}/{path}")
    return None if found == ".." or found.startswith("../") else found


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield paths that do not exist or lead out of the entry, and unfilled templates."""
    paths = {file.path for file in entry.files}
    for number, output in enumerate(config.output):
        if output.label_filename:
            yield from _label(paths, f"output[{number}].label_filename", output)
    for key, name in config.cc_model_filenames.items():
        where, subject = f'cc_model_filenames["{key}"]', f"the model for compute capability {key}"
        if not _CAPABILITY.fullmatch(key):
            yield warning(f"no GPU has compute capability '{key}'", where, "Triton looks for 8.0 or 9.0", "write one")
        for version in served(entry):
            yield from _needed(paths, subject, where, str(version), name, whole_folder=True)
    backend = resolved(entry).name
    if backend == "python" and ENVIRONMENT in config.parameters:
        where = f'parameters["{ENVIRONMENT}"].string_value'
        yield from _environment(entry, paths, where, config.parameters[ENVIRONMENT].string_value)
    for key in _ON_THE_SERVER.get(backend, ()):
        if key in config.parameters:
            value = config.parameters[key].string_value
            where = f'parameters["{key}"].string_value'
            yield from _on_the_server(entry, paths, key, where, value)
            if backend == "tensorrtllm" and key != _TOKENIZER and value and not value.startswith(("/", "${")):
                why = "TensorRT-LLM looks for it where the server was started"
                yield error(f"{key}: {value} does not exist", where, why, f"write {REPOSITORY_ROOT}/{entry.name}/…")
    for where, text in leaves(config):
        if found := _TEMPLATE.search(text):
            what, do = f"the template {found[0]} is not filled in", "write the value"
            key = where.partition('"')[2].partition('"')[0]
            is_path = key in _ON_THE_SERVER.get(backend, ())
            optional = backend == "tensorrtllm" and where.startswith("parameters") and not is_path
            why = "TensorRT-LLM uses its default if a parameter is not a number" if optional else ""
            yield (warning if optional else error)(what, where, why, do)


def check_agents(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield agents that Triton lacks, and checksums that its only agent refuses (checksum_repository_agent)."""
    paths = {file.path for file in entry.files}
    for number, agent in enumerate(config.model_repository_agents.agents):
        place = f"model_repository_agents.agents[{number}]"
        if agent.name != "checksum":
            what, why = f"Triton has no repository agent '{agent.name}'", "a server without it refuses the model"
            yield warning(what, f"{place}.name", why, closest(agent.name, ["checksum"], "remove it"))
            continue
        for key, expected in agent.parameters.items():
            where, (algorithm, _, name) = f'{place}.parameters["{key}"]', key.partition(":")
            if not name or algorithm.lower() != "md5":
                yield error(f"'{key}' is not a checksum", where, "the agent supports only MD5", "write MD5:<path>")
            elif (path := below("", name)) is None or path not in paths:
                yield from _needed(paths, key, where, "", name)
            else:
                with (entry.folder / path).open("rb") as file:
                    found = file_digest(file, "md5").hexdigest()
                if found != expected:
                    why, do = f"{path} has {found}", "write this checksum, or add the right file"
                    yield error(f"the checksum '{expected}' is wrong", where, why, do)


def check_data(
    entry: Entry, subject: str, where: str, folder: str, name: str, data_type: str, dims: Any, size: int
) -> Iterator[Finding]:
    """Yield findings about a file with a tensor's data, whose elements have `size` bytes. Each text is preceded by its
    length: four bytes, little-endian (infer_request.cc, ValidateBytesInputs)."""
    sizes = {file.path: file.size for file in entry.files}
    yield from _needed(sizes, subject, where, folder, name)
    if (path := below(folder, name)) not in sizes or path is None:
        return
    if data_type == "TYPE_STRING":
        if sizes[path] <= _TEXT_BYTES and (wrong := _wrong_texts((entry.folder / path).read_bytes(), prod(dims))):
            do = "write the length in bytes before each text: four bytes, little-endian"
            yield error(f"{subject}: {path} {wrong}", where, "Triton refuses it, or crashes", do)
    elif sizes[path] < (needs := prod(dims) * size):
        yield error(f"{subject}: {path} has {sizes[path]} bytes, but needs {needs}", where)


def _wrong_texts(content: bytes, count: int) -> str:
    at, found = 0, 0
    while at < len(content):
        if len(content) - at < 4:
            return f"ends within the length of text {found}"
        length = int.from_bytes(content[at : at + 4], "little")
        at, found = at + 4 + length, found + 1
        if at > len(content):
            return f"has length {length} before text {found - 1}, but only {length - at + len(content)} bytes after it"
    return "" if found == count else f"has {found} texts, but its dims need {count}"


def _needed(
    paths: Any, subject: str, where: str, folder: str, name: str, *, whole_folder: bool = False
) -> Iterator[Finding]:
    path = below(folder, name)
    if path is None:
        yield _outside(subject, where, name)
    elif path not in paths and _is_folder(paths, path) and not whole_folder:
        yield error(f"{subject}: {path} is a directory", where, "Triton crashes on it", "name a file")
    elif path not in paths and not _is_folder(paths, path):
        near = {posixpath.relpath(each, folder or "."): each for each in paths if posixpath.dirname(each) == folder}
        yield error(f"{subject}: there is no file {path}", where, do=closest(name, near, "add it"))
    elif missing := next((each for each in _climbed(folder, name) if not _is_folder(paths, each)), None):
        what = f"{subject}: there is no directory {missing}, which {name} goes through"
        yield error(what, where, do="create it, or write the path without ..")


def _climbed(folder: str, path: str) -> Iterator[str]:
    """Yield the directories that a path enters and leaves by `..`: they must exist."""
    steps = [each for each in f"{folder}/{path}".split("/") if each not in ("", ".")]
    for at, step in enumerate(steps):
        if step == ".." and at:
            yield posixpath.normpath("/".join(steps[:at]))


def _is_folder(paths: Any, folder: str) -> bool:
    return folder == "." or any(each.startswith(f"{folder}/") for each in paths)


def _outside(subject: str, where: str, path: str) -> Finding:
    what, why = f"{subject}: {path} is not part of the entry", "it is not registered, so every server must have it"
    return warning(what, where, why, "move it into the entry")


def _label(paths: Any, where: str, output: Any) -> Iterator[Finding]:
    subject, name = f"the labels of output '{output.name}'", output.label_filename
    if below("", name) is None:
        do = "move it next to config.pbtxt, and write its name"
        yield error(f"{subject}: {name} is not part of the entry", where, "Triton refuses it", do)
    else:
        yield from _needed(paths, subject, where, "", name)


def _environment(entry: Entry, paths: Any, where: str, value: str) -> Iterator[Finding]:
    subject, own = "the environment", f"{REPOSITORY_ROOT}/{entry.name}"
    if _TEMPLATE.search(value):
        return
    if value.startswith((_HERE, f"{own}/")):
        rest = value.removeprefix(_HERE) if value.startswith(_HERE) else value.removeprefix(own)
        path = below("", rest) if rest.startswith("/") else None
        if path is None:
            yield _outside(subject, where, value)
        elif path not in paths:
            inside = [each.removeprefix(f"{path}/") for each in paths if each.startswith(f"{path}/")]
            if inside and "bin/activate" not in inside:
                why = "the Python backend takes a directory with this file, or an archive (.tar.gz)"
                yield error(f"{subject}: there is no {path}/bin/activate", where, why, "unpack the environment there")
            elif not inside:
                why = "the Python backend runs the model in it"
                yield error(f"{subject}: there is no {path}", where, why, "add it")
    elif not value.startswith("/"):
        why = "the Python backend looks for it where the server was started"
        do = f"write {_HERE}/ before it, with two dollar signs"
        yield error(f"{subject}: {value} does not exist", where, why, do)
    else:
        yield _outside(subject, where, value)


def _on_the_server(entry: Entry, paths: Any, key: str, where: str, value: str) -> Iterator[Finding]:
    own = f"{REPOSITORY_ROOT}/{entry.name}/"
    if value.startswith(own):
        yield from _needed(paths, key, where, "", value.removeprefix(own), whole_folder=True)
    elif value.startswith("/"):
        yield _outside(key, where, value)
