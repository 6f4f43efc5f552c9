"""Servers of OpenAI's API as one kind of inference server."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate_contracts.openai import served_as

from ..errors import UnreachableError, UsageError
from ..server_kind import ServerKind

if TYPE_CHECKING:
    from ..calling.proxy import ProxyClient
    from ..findings import Finding
    from ..registry.golden import Golden
    from ..repository import Configs

_VERBS: Final = {"messages": "chat/completions", "prompt": "completions", "input": "embeddings"}
"""The call of a golden request, by the key that only this call has."""
_OUTPUTS: Final = {"messages": "text", "prompt": "text", "input": "embedding"}


class OpenaiKind(ServerKind):
    """Entries are directories in the format of Hugging Face's hub, which are one version each."""

    entry = "a language model's with config.json, a tokenizer and *.safetensors"
    follows_repository = False
    speaks_v2 = False

    def entries_in(self, folder: Path) -> list[Path]:
        from .entry import is_entry

        if is_entry(folder) or not folder.is_dir():
            return [folder] if folder.is_dir() else []
        return sorted(each for each in folder.iterdir() if each.is_dir() and is_entry(each))

    def version_folder(self, entry: Path) -> str:
        """Return the entry itself. Raises UsageError if it has no configuration."""
        from .entry import CONFIG

        if not (entry / CONFIG).is_file():
            raise UsageError(f"it has no {CONFIG}", where=entry, do="name a whole directory in the hub's format")
        return "."

    def check(self, folder: Path, *_: Any, trusted: bool = False, **_has: Any) -> "list[Finding]":
        from .entry import HubEntry, check_entry

        return check_entry(HubEntry(folder), trusted=trusted)

    def check_golden(self, _folder: Path, golden: "Golden", where: str) -> None:
        """Check that it is one request with a deterministic, comparable response."""
        request = golden.request
        keys = [each for each in _VERBS if each in request]
        do = 'write {"request": {"messages": […], "temperature": 0}, "outputs": {"text": ["…"]}}'
        if len(keys) != 1:
            what = "the golden request is neither a chat (messages), a completion (prompt) nor an embedding (input)"
            raise UsageError(what, where=where, do=do)
        if request.get("stream"):
            raise UsageError("the golden request requests a stream", where=where, do="remove `stream`")
        can = _OUTPUTS[keys[0]]
        if wrong := sorted((golden.outputs or {}).keys() - {can}):
            what = f"the golden request names the output {wrong[0]}, which the response does not have"
            raise UsageError(what, where=where, do=f"use {can}")
        if golden.outputs and can == "text" and request.get("temperature") != 0:
            why = "otherwise responses are random"
            raise UsageError("the golden request does not set temperature to 0", where=where, why=why, do=do)

    def ask(self, proxy: "ProxyClient", model: str, request: Mapping[str, Any], **about: Any) -> dict[str, Any]:
        """Call a model, or a version by its served name. Returns the response as outputs."""
        from ..calling.proxy import model_path, served_name

        version, key = about.pop("version", None), next((each for each in _VERBS if each in request), None)
        model_path(about.get("server"), None, version)  # raises UsageError for an invalid name or version
        if key is None:
            what = "the request is neither a chat (messages), a completion (prompt) nor an embedding (input)"
            raise UsageError(what, do="write it in the format of OpenAI's API, without the model")
        verb = _VERBS[key]
        name = served_name(model) if version is None else served_as(served_name(model), int(version))
        answer = proxy.openai(verb, {**request, "model": name}, **about)
        try:
            outputs = _outputs(verb, answer)
        except (KeyError, TypeError, AttributeError):
            why = f"it has no {'data with an embedding' if verb == 'embeddings' else 'choices with a text'}"
            raise UnreachableError(f"not a response of /v1/{verb}", where=proxy.url, why=why) from None
        return {"outputs": [{"name": name, "data": data} for name, data in outputs.items()]}

    @property
    def configs(self) -> "Configs":
        """The file next to the versions, which engines do not read."""
        from . import configs

        return configs

    def check_staged(self, staged: Path, *_: Any, **_has: Any) -> "list[Finding]":
        """Check a fetched entry. Its code was accepted when it was registered."""
        from tidegate_contracts.manifest import ENTRY_VERSION

        return self.check(staged / ENTRY_VERSION, trusted=True)


def _outputs(verb: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    if verb == "embeddings":
        return {"embedding": [each["embedding"] for each in answer["data"]]}
    if verb == "completions":
        return {"text": [each["text"] for each in answer["choices"]]}
    return {"text": [each["message"].get("content") or "" for each in answer["choices"]]}
