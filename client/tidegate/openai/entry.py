"""An entry for servers of OpenAI's API: a directory in the format of Hugging Face's hub. Runs and unpickles nothing."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ..errors import UsageError
from ..failures import plain
from ..findings import Finding, error, in_order, warning
from ..hashing import below

CONFIG: Final = "config.json"
INDEX: Final = "model.safetensors.index.json"
WEIGHTS: Final = ".safetensors"
_GGUF: Final = ".gguf"
_TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "tekken.json", "tiktoken.model", "vocab.json", "vocab.txt")
_TEMPLATES: Final = ("chat_template.jinja", "chat_template.json")
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_SHARD: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")
_MOST_SHARDS: Final = 10_000
_MOST_HEADER: Final = 100_000_000  # Bytes, the limit of the safetensors library.
_MOST_JSON: Final = 1 << 28  # Bytes. Tokenizers of many languages have some tens of millions.
_POINTER: Final = b"version https://git-lfs.github.com/spec/v1"  # Such a file has less than 1024 bytes.


@dataclass(frozen=True)
class HubEntry:
    """The content of the directory. `found` has the findings while it is read."""

    folder: Path
    found: list[Finding] = field(default_factory=list)

    @cached_property
    def files(self) -> dict[str, int]:
        """The sizes of all files by path, without links, special files and pointers."""
        files = {}
        try:
            for path, item in below(self.folder):
                if item.is_symlink():
                    do = "replace it with the file itself. `cp -rL` does that for a directory of the hub's cache"
                    self.found.append(error("a symbolic link", path, "a repository cannot contain one", do))
                elif item.is_file():
                    files[path] = item.stat().st_size
                    if files[path] < 1024 and not path.lower().endswith(_PICKLES) and _is_pointer(item.path):
                        del files[path]
                        why, do = "the file itself was not fetched", "run `git lfs pull` in its clone"
                        self.found.append(error("a pointer of git-lfs", path, why, do))
                elif not item.is_dir():
                    self.found.append(error("neither a file nor a directory", path, do="remove it"))
        except OSError as refused:
            raise UsageError("cannot be read", where=self.folder, why=refused.strerror or "") from None
        return files

    @property
    def names(self) -> set[str]:
        """The paths of all files, including those with a finding."""
        return self.files.keys() | {each.where for each in self.found}

    @cached_property
    def config(self) -> Mapping[str, Any]:
        return self.json(CONFIG) or {}

    @property
    def architectures(self) -> tuple[str, ...]:
        names = self.config.get("architectures")
        return tuple(each for each in names if isinstance(each, str)) if isinstance(names, list) else ()

    @property
    def chats(self) -> bool:
        document = self.json(_TOKENIZER_CONFIG) or {}
        return any(each in self.names for each in _TEMPLATES) or bool(document.get("chat_template"))

    @cached_property
    def documents(self) -> dict[str, Any]:
        """The content of JSON files in the directory itself, each read once."""
        documents = {}
        for name in (each for each in self.files if each.endswith(".json") and "/" not in each):
            try:
                if self.files[name] > _MOST_JSON:
                    raise ValueError("it is too long")
                documents[name] = json.loads((self.folder / name).read_bytes())
            except (OSError, ValueError, RecursionError) as wrong:
                self.found.append(error("not a JSON object", name, plain(wrong), "fetch it again"))
        return documents

    def json(self, name: str) -> dict[str, Any] | None:
        """Return the content of a file, or None if it is missing or, with a finding, not a JSON object."""
        document = self.documents.get(name)
        if name in self.documents and not isinstance(document, dict):
            self.found.append(error("not a JSON object", name, "it is another JSON value", "fetch it again"))
        return document if isinstance(document, dict) else None


def _is_pointer(file: str) -> bool:
    with suppress(OSError):  # reported when the file is read
        return Path(file).read_bytes().startswith(_POINTER)
    return False


def is_entry(folder: Path) -> bool:
    """Return whether a directory seems to be an entry: it has a configuration or weights in the hub's format."""
    return (folder / CONFIG).is_file() or any(any(folder.glob(f"*{each}")) for each in (WEIGHTS, _GGUF))


def check_entry(entry: HubEntry, *, trusted: bool) -> list[Finding]:
    """Return what keeps engines from serving an entry, or is dangerous to them. `trusted` accepts its code."""
    checks = (_configuration(entry), _tokenizer(entry), _weights(entry), _unsafe(entry, trusted=trusted))
    found = [each for check in checks for each in check]
    return in_order([*entry.found, *found])


def _configuration(entry: HubEntry) -> Iterator[Finding]:
    if CONFIG not in entry.names:
        why = "engines read the kind of model from it"
        yield error("the file is missing", CONFIG, why, "fetch the whole directory")
    elif entry.json(CONFIG) is not None and not entry.architectures:
        yield error("it has no architectures", CONFIG, do="fetch the configuration of the model")
    elif entry.config and not isinstance(entry.config.get("model_type"), str) and not _has_auto_map(entry.config):
        why = "engines need it to parse the configuration"
        yield error("it has no model_type", CONFIG, why, "fetch the configuration of the model")


def _tokenizer(entry: HubEntry) -> Iterator[Finding]:
    if not any(each in _TOKENIZERS or each.endswith(".tiktoken") for each in entry.names):
        why = "no text can be read without one"
        yield error("there is no tokenizer", _TOKENIZERS[0], why, "fetch the whole directory")
    tokenizer = entry.json(_TOKENIZERS[0])
    if tokenizer is not None and not isinstance(tokenizer.get("model"), dict):
        yield error("not a tokenizer", _TOKENIZERS[0], "it has no `model` with the vocabulary", "fetch it again")
    if any("CausalLM" in each for each in entry.architectures) and not entry.chats:
        what, why = "there is no chat template", "engines refuse chats without a chat_template"
        yield warning(what, _TOKENIZER_CONFIG, why, "add one, or call the model only by /v1/completions")


def _weights(entry: HubEntry) -> Iterator[Finding]:
    names = {each for each in entry.names if each.endswith(WEIGHTS) and "/" not in each}
    if not names:
        is_gguf = any(each.endswith(_GGUF) for each in entry.names)
        why = "GGUF is the format of llama.cpp, but engines need safetensors" if is_gguf else ""
        do = "fetch or save the model's own weights as safetensors (save_pretrained)"
        yield error("there are no weights", f"model{WEIGHTS}", why, do)
    wanted: dict[str, str] = {}
    for name, match in ((name, _SHARD.fullmatch(name)) for name in sorted(names)):
        if match is not None:
            numbers = range(1, min(int(match[3]), _MOST_SHARDS) + 1)
            others = (f"{match[1]}-{number:05}-of-{match[3]}{WEIGHTS}" for number in numbers)
            wanted |= dict.fromkeys([INDEX, *others], f"{name} is one of several parts")
    index = entry.json(INDEX)
    placed = {} if index is None else index.get("weight_map")
    if not isinstance(placed, dict) or not all(isinstance(each, str) for each in placed.values()):
        yield error("it has no weight_map", INDEX, do="fetch it again")
        placed = {}
    wanted |= dict.fromkeys(placed.values(), f"{INDEX} names it")
    for name in sorted(wanted.keys() - entry.names):
        yield error("the file is missing", name, wanted[name], "fetch the whole directory")
    for name in sorted(names & entry.files.keys()):
        if why := _cut_short(entry.folder / name):
            yield error("the file is incomplete", name, why, "fetch it again")


def _cut_short(file: Path) -> str:
    """Return why a file is incomplete, by its header (https://huggingface.co/docs/safetensors, "Format")."""
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if size < 8 or length > _MOST_HEADER or 8 + length > size:
                return "its header is incomplete, or it is not a safetensors file"
            header = json.loads(opened.read(length))
        end = max((each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"), default=0)
        return "" if 8 + length + end == size else f"it has {size} bytes, but its header declares {8 + length + end}"
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as wrong:
        return f"its header cannot be read: {plain(wrong)}"


def _unsafe(entry: HubEntry, *, trusted: bool) -> Iterator[Finding]:
    for path in (path for path in entry.files if path.lower().endswith(_PICKLES)):
        why, do = "loading a pickle runs any code in it", "save the weights as safetensors, and remove it"
        yield error("engines must not load pickles", path, why, do)
    # transformers looks for it in the settings of processors, of video and of other parts too.
    code = [path for path in entry.files if path.endswith(".py")]
    code += [path for path, document in entry.documents.items() if _has_auto_map(document)]
    found, do = (warning, "") if trusted else (error, "if you have read it and trust it, pass --trusted")
    for path in code:
        yield found("it contains code", path, "engines with --trust-remote-code run it", do)


def _has_auto_map(document: Any) -> bool:
    """Search at any depth, as processors have parts. A word of a vocabulary with this name has a number."""
    rest = [document]
    while rest:
        each = rest.pop()
        if isinstance(each, dict):
            found = each.get("auto_map")
            if found and not isinstance(found, int):
                return True
            each = [*each.values()]
        rest += each if isinstance(each, list) else ()
    return False
