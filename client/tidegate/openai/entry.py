"""An entry for servers of OpenAI's API: a folder as Hugging Face's hub has it. Nothing of it is run, or unpickled."""

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
_MOST_HEADER: Final = 100_000_000  # Bytes; the library of safetensors takes no longer ones.
_MOST_JSON: Final = 1 << 28  # Bytes; tokenizers of many languages have some tens of millions.
_POINTER: Final = b"version https://git-lfs.github.com/spec/v1"  # Such a file has less than 1024 bytes.


@dataclass(frozen=True)
class HubEntry:
    """What lies in the folder; `found` is what was found while it was read."""

    folder: Path
    found: list[Finding] = field(default_factory=list)

    @cached_property
    def files(self) -> dict[str, int]:
        """The sizes of all files, by their paths; links, special files and pointers are not among them."""
        files = {}
        try:
            for path, item in below(self.folder):
                if item.is_symlink():
                    do = "put the file itself in its place; `cp -rL` copies a folder of the hub's cache so"
                    self.found.append(error("this is a symbolic link", path, "a repository has none", do))
                elif item.is_file():
                    files[path] = item.stat().st_size
                    if files[path] < 1024 and not path.lower().endswith(_PICKLES) and _is_pointer(item.path):
                        del files[path]
                        why, do = "the file itself was not fetched", "run `git lfs pull` in the clone that it is from"
                        self.found.append(error("this is a pointer of git-lfs", path, why, do))
                elif not item.is_dir():
                    self.found.append(error("this is neither a file nor a folder", path, do="take it away"))
        except OSError as refused:
            raise UsageError("this cannot be read", where=self.folder, why=refused.strerror or "") from None
        return files

    @property
    def names(self) -> set[str]:
        """The paths of all files, and of what is told to be none."""
        return self.files.keys() | {each.where for each in self.found}

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """What config.json says; nothing where it is none."""
        return self.json(CONFIG) or {}

    @property
    def architectures(self) -> tuple[str, ...]:
        """The classes that config.json names for it."""
        names = self.config.get("architectures")
        return tuple(each for each in names if isinstance(each, str)) if isinstance(names, list) else ()

    @property
    def chats(self) -> bool:
        """Whether it says how a chat becomes a text."""
        document = self.json(_TOKENIZER_CONFIG) or {}
        return any(each in self.names for each in _TEMPLATES) or bool(document.get("chat_template"))

    @cached_property
    def documents(self) -> dict[str, Any]:
        """What files of JSON say that lie in the folder itself, each read once."""
        documents = {}
        for name in (each for each in self.files if each.endswith(".json") and "/" not in each):
            try:
                if self.files[name] > _MOST_JSON:
                    raise ValueError("it is too long for one")
                documents[name] = json.loads((self.folder / name).read_bytes())
            except (OSError, ValueError, RecursionError) as wrong:
                self.found.append(error("this is no JSON object", name, plain(wrong), "get it again"))
        return documents

    def json(self, name: str) -> dict[str, Any] | None:
        """Return what a file of it says; None where there is none or, with a finding, where that is no JSON object."""
        document = self.documents.get(name)
        if name in self.documents and not isinstance(document, dict):
            self.found.append(error("this is no JSON object", name, "it is something else", "get it again"))
        return document if isinstance(document, dict) else None


def _is_pointer(file: str) -> bool:
    with suppress(OSError):  # Who cannot read it is told so with what it should have been.
        return Path(file).read_bytes().startswith(_POINTER)
    return False


def is_entry(folder: Path) -> bool:
    """Tell whether a folder seems to be one: it has a configuration or weights as the hub has them."""
    return (folder / CONFIG).is_file() or any(any(folder.glob(f"*{each}")) for each in (WEIGHTS, _GGUF))


def check_entry(entry: HubEntry, *, trusted: bool) -> list[Finding]:
    """Return what keeps engines from serving an entry, or is dangerous to; `trusted`: its code may be run."""
    checks = (_configuration(entry), _tokenizer(entry), _weights(entry), _strange(entry, trusted=trusted))
    found = [each for check in checks for each in check]
    return in_order([*entry.found, *found])


def _configuration(entry: HubEntry) -> Iterator[Finding]:
    if CONFIG not in entry.names:
        yield error("it is not there", CONFIG, "engines learn from it what kind of model it is", "get the whole folder")
    elif entry.json(CONFIG) is not None and not entry.architectures:
        yield error("it names no architectures", CONFIG, do="get the configuration of the model")
    elif entry.config and not isinstance(entry.config.get("model_type"), str) and not _has_auto_map(entry.config):
        why = "engines choose by it what reads the configuration"
        yield error("it names no model_type", CONFIG, why, "get the configuration of the model")


def _tokenizer(entry: HubEntry) -> Iterator[Finding]:
    if not any(each in _TOKENIZERS or each.endswith(".tiktoken") for each in entry.names):
        yield error("there is no tokenizer", _TOKENIZERS[0], "without one no text can be read", "get the whole folder")
    tokenizer = entry.json(_TOKENIZERS[0])
    if tokenizer is not None and not isinstance(tokenizer.get("model"), dict):
        yield error("this is no tokenizer", _TOKENIZERS[0], "it has no `model`, which has the words", "get it again")
    if any("CausalLM" in each for each in entry.architectures) and not entry.chats:
        what, why = "it does not say how a chat becomes a text", "engines refuse chats without a chat_template"
        yield warning(what, _TOKENIZER_CONFIG, why, "give it one, or have it called by /v1/completions alone")


def _weights(entry: HubEntry) -> Iterator[Finding]:
    names = {each for each in entry.names if each.endswith(WEIGHTS) and "/" not in each}
    if not names:
        is_gguf = any(each.endswith(_GGUF) for each in entry.names)
        why = "GGUF is the format of llama.cpp, and engines are given a folder of safetensors" if is_gguf else ""
        do = "get or save the model's own weights as safetensors (save_pretrained)"
        yield error("there are no weights", f"model{WEIGHTS}", why, do)
    wanted: dict[str, str] = {}
    for name, match in ((name, _SHARD.fullmatch(name)) for name in sorted(names)):
        if match is not None:
            numbers = range(1, min(int(match[3]), _MOST_SHARDS) + 1)
            others = (f"{match[1]}-{number:05}-of-{match[3]}{WEIGHTS}" for number in numbers)
            wanted |= dict.fromkeys([INDEX, *others], f"{name} is one of so many")
    index = entry.json(INDEX)
    placed = {} if index is None else index.get("weight_map")
    if not isinstance(placed, dict) or not all(isinstance(each, str) for each in placed.values()):
        yield error("it has no weight_map", INDEX, do="get it again")
        placed = {}
    wanted |= dict.fromkeys(placed.values(), f"{INDEX} names it")
    for name in sorted(wanted.keys() - entry.names):
        yield error("it is not there", name, wanted[name], "get the whole folder")
    for name in sorted(names & entry.files.keys()):
        if why := _cut_short(entry.folder / name):
            yield error("this file is not whole", name, why, "get it again")


def _cut_short(file: Path) -> str:
    """Return why a safetensors file is not whole, by its header (https://huggingface.co/docs/safetensors, "Format")."""
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if size < 8 or length > _MOST_HEADER or 8 + length > size:
                return "its header is cut, or it is no safetensors file"
            header = json.loads(opened.read(length))
        end = max((each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"), default=0)
        return "" if 8 + length + end == size else f"it has {size} bytes, and its header says {8 + length + end}"
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as wrong:
        return f"its header cannot be read: {plain(wrong)}"


def _strange(entry: HubEntry, *, trusted: bool) -> Iterator[Finding]:
    for path in (path for path in entry.files if path.lower().endswith(_PICKLES)):
        why, do = "a pickle runs whatever is in it when it is read", "keep weights as safetensors, and take it away"
        yield error("no engine is to load this", path, why, do)
    # transformers looks for it in the settings of processors, of video and of whatever comes next, too.
    code = [path for path in entry.files if path.endswith(".py")]
    code += [path for path, document in entry.documents.items() if _has_auto_map(document)]
    found, do = (warning, "") if trusted else (error, "where you have read it, and trust it, say --trusted")
    for path in code:
        yield found("it brings code", path, "engines run it where they are told to (--trust-remote-code)", do)


def _has_auto_map(document: Any) -> bool:
    """Look for it at any depth, as processors have parts; a word of a vocabulary that is called so has a number."""
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
