"""Triton as a kind of server. Methods import protobuf and gRPC when they run, because that is slow."""

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
"""Fields in which two versions may differ and still be served together under the configuration of one of them."""


class TritonKind(ServerKind):
    """Entries are directories of a Triton model repository: `config.pbtxt` and a directory for each version."""

    entry = "a Triton model's with config.pbtxt and a version directory such as 1/"
    follows_repository = True
    speaks_v2 = True

    def entries_in(self, folder: Path) -> list[Path]:
        from .entries.entry import entries_in

        return entries_in(folder)

    def version_folder(self, entry: Path) -> str:
        """Return the only version directory, or ENTRY_VERSION if there is none. Raises UsageError for several."""
        found = sorted(item.name for item in entry.iterdir() if _VERSION.fullmatch(item.name) and item.is_dir())
        if len(found) > 1:
            why = "one version is registered at a time, and the registry gives it its number"
            do = "keep only one of them"
            raise UsageError(f"it has the version directories {', '.join(found)}", where=entry, why=why, do=do)
        if not (entry / "config.pbtxt").is_file():
            do = "create it (`tidegate model new`), next to the version directory and not in it"
            raise UsageError("it has no config.pbtxt", where=entry, do=do)
        return found[0] if found else ENTRY_VERSION

    def check(
        self,
        folder: Path,
        name: str | None = None,
        *,
        trusted: bool = False,  # noqa: ARG002 - entries of the Python backend are code
        **has: Unpack[ServerHas],
    ) -> list[Finding]:
        from .entries.checks import check_entry
        from .entries.entry import read_entry

        return check_entry(read_entry(folder, name), **has)

    def check_golden(self, folder: Path, golden: "Golden", where: str) -> None:
        """Check the names of its tensors against the entry's configuration, if that has any."""
        from .entries.entry import read_entry

        inputs: dict[str, bool] = {}
        outputs: list[str] = []
        if (config := read_entry(folder).config) is not None:
            inputs = {each.name: bool(each.optional) for each in config.input}
            outputs = [each.name for each in config.output]
        golden.check(inputs, outputs, where)

    def ask(self, proxy: "ProxyClient", model: str, request: Mapping[str, Any], **about: Any) -> dict[str, Any]:
        return proxy.infer_json(model, request, **about)

    @property
    def configs(self) -> "Configs":
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
        """Check a fetched entry. The steps of an ensemble must be in the repository."""
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
                        missing.add(name)  # it was undeployed, but its files are there
                    else:
                        models[name] = config
        first = {f"there is no model '{name}'": bring(name) for name in missing}
        found = check_entry(entry, models=models, **has)
        return [replace(each, do=first.get(each.what, each.do)) for each in found]

    def check_backend(
        self, model: str, entry_config: str, files: Collection["StoredFile"], backends: Collection[str] | None
    ) -> list[Finding]:
        from .entries.checks.backends import check_server
        from .entries.entry import Entry
        from .entries.text import read_config

        folders = {each.path.partition("/")[0] for each in files if "/" in each.path}
        entry = Entry(Path(model), model, read_config(entry_config), tuple(sorted(files)), tuple(sorted(folders)), ())
        found = check_server(entry, entry.config, backends) if entry.config is not None else ()
        return [replace(each, where=entry.where(each.where)) for each in found]

    def needs_gpu(self, entry_config: str) -> str | None:
        """Return the backend or platform of an entry if it runs only on GPUs."""
        from .entries.text import parse_config

        config = parse_config(entry_config)
        return next((each for each in (config.backend, config.platform) if each in NEEDS_GPU), None)

    def code_backend(self, entry_config: str, files: Iterable["StoredFile"]) -> str | None:
        """Return the backend if it can name weights outside the entry, by the same rule as the eviction policy."""
        from .entries.text import read_config

        if (config := read_config(entry_config).config) is None:
            return None
        return code_backend(config.backend, config.platform, ((each.path, each.size) for each in files))

    def alias_of(self, config: Mapping[str, Any], alias: str) -> str | None:
        """Return the version of an alias, which is the text of a parameter in the configuration."""
        parameter: Mapping[str, str] = (config.get("parameters") or {}).get(ALIAS_PARAMETER + alias, {})
        return parameter.get("string_value")

    def failures(self, statistics: Mapping[str, Any]) -> int:
        return int(statistics.get("inference_stats", {}).get("fail", {}).get("count", 0))

    def check_beside(self, old_config: str, new_config: str, old: int, new: int) -> list[Finding]:
        """Check that one configuration fits two versions, because Triton has one for all versions of a model."""
        from .publishing.config import CONFIG, config_differences

        why = "Triton has one configuration for all versions of a model"
        do = (
            "register it under another model name, and move its callers to that. Or run `tidegate undeploy` first: "
            "to go back, name the version with `tidegate rollback … --version N`"
        )
        return [
            warning(f"version {old} runs under version {new}'s {each}", CONFIG)
            if each.startswith("parameters")
            else error(f"versions {old} and {new} cannot be served at the same time: {each}", CONFIG, why, do)
            for each in config_differences(old_config, new_config)
            if not each.startswith(HARMLESS)
        ]
