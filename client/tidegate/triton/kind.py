"""Triton as one kind of inference server.

What a method needs is imported when it runs: protobuf and gRPC take longer to import than most commands run.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from tidegate_contracts.manifest import ENTRY_VERSION
from tidegate_contracts.triton import ALIAS_PARAMETER, code_backend

from ..errors import UsageError
from ..findings import Finding, ServerHas, error, warning
from ..server_kind import ServerKind

if TYPE_CHECKING:
    from ..calling.proxy import ProxyClient
    from ..publishing import Repository
    from ..registry.golden import Golden
    from ..repository import Configs, StoredFile

_VERSION: Final = re.compile(r"[1-9][0-9]*")
NEEDS_GPU: Final = ("tensorrt", "tensorrt_plan", "tensorrtllm", "dali")
HARMLESS: Final = ("version_policy", "dynamic_batching", "instance_group", "model_warmup", "response_cache")
"""Fields in which versions may differ and still be served beside each other under the configuration of one of them."""


class TritonKind(ServerKind):
    """Entries are folders of a Triton model repository: `config.pbtxt` and a folder for each version."""

    entry = "a Triton model's, with config.pbtxt and a version's folder, 1/"
    follows_repository = True
    speaks_v2 = True

    def entries_in(self, folder: Path) -> list[Path]:
        """Return the folder itself, or those in it, with a `config.pbtxt` or a version's folder."""
        from .entries.entry import entries_in

        return entries_in(folder)

    def version_folder(self, entry: Path) -> str:
        """Return the one version folder, ENTRY_VERSION where there is none; raises UsageError for several."""
        found = sorted(item.name for item in entry.iterdir() if _VERSION.fullmatch(item.name) and item.is_dir())
        if len(found) > 1:
            why = "what is registered is one version, and the registry gives it its number"
            do = "leave one of them in it"
            raise UsageError(f"it has the version folders {', '.join(found)}", where=entry, why=why, do=do)
        if not (entry / "config.pbtxt").is_file():
            do = "write one (`tidegate model new`), beside the version folder and not in it"
            raise UsageError("it has no config.pbtxt", where=entry, do=do)
        return found[0] if found else ENTRY_VERSION

    def check(
        self,
        folder: Path,
        name: str | None = None,
        *,
        trusted: bool = False,  # noqa: ARG002 - a program for its Python backend is what such an entry is
        **has: Unpack[ServerHas],
    ) -> list[Finding]:
        """Return what Triton would refuse or ignore."""
        from .entries.checks import check_entry
        from .entries.entry import read_entry

        return check_entry(read_entry(folder, name), **has)

    def check_golden(self, folder: Path, golden: "Golden", where: str) -> None:
        """Check that its tensors are those of the entry's configuration, where that says any."""
        from .entries.entry import read_entry

        inputs: dict[str, bool] = {}
        outputs: list[str] = []
        if (config := read_entry(folder).config) is not None:
            inputs = {each.name: bool(each.optional) for each in config.input}
            outputs = [each.name for each in config.output]
        golden.check(inputs, outputs, where)

    def ask(self, proxy: "ProxyClient", model: str, request: Mapping[str, Any], **about: Any) -> dict[str, Any]:
        """Send the body of a v2 inference request."""
        return proxy.infer_json(model, request, **about)

    @property
    def configs(self) -> "Configs":
        """The configuration that Triton reads beside the versions of a model."""
        from .publishing import config

        return config

    def check_staged(
        self,
        staged: Path,
        model: str,
        repository: "Repository",
        *,
        bring: Callable[[str], str],
        **has: Unpack[ServerHas],
    ) -> list[Finding]:
        """Check an entry that was fetched; an ensemble's steps must be in the repository."""
        from .entries.checks import check_entry
        from .entries.entry import read_entry
        from .entries.text import CONFIG, parse_config

        entry = read_entry(staged, model)
        models, missing = None, set()
        if entry.config is not None and entry.config.ensemble_scheduling.step:
            models = {}
            steps, there = {step.model_name for step in entry.config.ensemble_scheduling.step}, set(repository.models())
            missing = steps - there
            for name in steps & there:
                if (text := repository.config(name)) is not None:
                    config = parse_config(text, f"{repository.where}/{name}/{CONFIG}")
                    published = self.configs.read_published(text)
                    if published.owner is not None and not published.served:
                        missing.add(name)  # it was taken out, and its files are there
                    else:
                        models[name] = config
        first = {f"there is no model '{name}'": bring(name) for name in missing}
        found = check_entry(entry, models=models, **has)
        return [replace(each, do=first.get(each.what, each.do)) for each in found]

    def check_backend(
        self, model: str, entry_config: str, files: Collection["StoredFile"], backends: Collection[str] | None
    ) -> list[Finding]:
        """Check the backend, by the configuration and the names of the files."""
        from .entries.checks.backends import check_server
        from .entries.entry import Entry
        from .entries.text import read_config

        folders = {each.path.partition("/")[0] for each in files if "/" in each.path}
        entry = Entry(Path(model), model, read_config(entry_config), tuple(sorted(files)), tuple(sorted(folders)), ())
        found = check_server(entry, entry.config, backends) if entry.config is not None else ()
        return [replace(each, where=entry.where(each.where)) for each in found]

    def needs_gpu(self, entry_config: str) -> str | None:
        """Return the backend, or the platform, of an entry that runs on GPUs only."""
        from .entries.text import parse_config

        config = parse_config(entry_config)
        return next((each for each in (config.backend, config.platform) if each in NEEDS_GPU), None)

    def code_backend(self, entry_config: str, files: Iterable["StoredFile"]) -> str | None:
        """Return the backend of an entry that may name weights outside its folder, as the eviction policy judges it."""
        from .entries.text import read_config

        if (config := read_config(entry_config).config) is None:
            return None
        return code_backend(config.backend, config.platform, ((each.path, each.size) for each in files))

    def alias_of(self, config: Mapping[str, Any], alias: str) -> str | None:
        """Return the version that an alias stands for: the text of one of the configuration's parameters."""
        parameter: Mapping[str, str] = (config.get("parameters") or {}).get(ALIAS_PARAMETER + alias, {})
        return parameter.get("string_value")

    def failures(self, statistics: Mapping[str, Any]) -> int:
        """Return what Triton's statistics extension counts as failed."""
        return int(statistics.get("inference_stats", {}).get("fail", {}).get("count", 0))

    def check_beside(self, old_config: str, new_config: str, old: int, new: int) -> list[Finding]:
        """Check that two versions can be served beside each other: Triton has one configuration for both."""
        from .publishing.config import CONFIG, config_differences

        why = "Triton has one configuration for all versions of a model"
        do = (
            "register it as a model of another name, which its callers then move to; or run `tidegate undeploy` first. "
            "To go back, then name the version: `tidegate rollback … --version N`"
        )
        return [
            warning(f"version {old} runs under version {new}'s {each}", CONFIG)
            if each.startswith("parameters")
            else error(f"versions {old} and {new} cannot be served beside each other: {each}", CONFIG, why, do)
            for each in config_differences(old_config, new_config)
            if not each.startswith(HARMLESS)
        ]
