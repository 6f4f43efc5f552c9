"""Checks an entry against its target before anything is written there."""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tidegate_contracts.eviction import DISK_FACTOR
from tidegate_contracts.manifest import ENTRY_VERSION, Manifest

from ..environments import ENVIRONMENTS, load
from ..errors import UsageError
from ..findings import Finding, ServerHas, Severity, advisory, error, errors, warning
from ..hashing import below
from ..kinds import kind_of_entry
from ..publishing import Repository
from ..repository import StoredFile
from .target import Placement, Target, command_into, homes


def refuse(findings: Collection[Finding], what: str, where: str) -> list[str]:
    """Raise UsageError if the findings include errors. Otherwise return them as sentences."""
    if bad := errors(findings):
        lines = (f"{each.where or where}: {each.what}" + (f" ({each.why})" if each.why else "") for each in bad)
        do = "; ".join(dict.fromkeys(each.do for each in bad if each.do))
        do = do or "correct the entry and register it again. `tidegate model check` reports the same errors"
        raise UsageError(what, where=where, why="".join(f"\n    {line}" for line in lines), do=do)
    return [f"{each.where}: {each.what}" if each.where else each.what for each in findings]


def against_environments(entry: Path, model: str) -> list[Finding]:
    """Return warnings about the servers of TIDEGATE_ENVIRONMENTS that could not serve an entry as this model. If no
    environment has a model of this name, check only that some server has its backend."""
    if not os.environ.get(ENVIRONMENTS, "").strip():
        return []
    kind, known = kind_of_entry(entry), load()
    everywhere = [home for of in known.environments for home in homes(of) if home.kind is kind]
    mine = [home for home in everywhere if home.model.name == model]
    by_itself = set(kind.check(entry, model, trusted=True))
    found: dict[Finding, list[str]] = {}
    for home in mine:
        for each in kind.check(entry, model, trusted=True, **_server_has([home])):
            if each not in by_itself:
                found.setdefault(each, []).append(f"{home.environment.name}/{home.server.name}")
    if not mine and everywhere and all(home.server.backends for home in everywhere):
        backends = {each for home in everywhere for each in home.server.backends}
        servers = list(dict.fromkeys(f"{home.environment.name}/{home.server.name}" for home in everywhere))
        found = dict.fromkeys(set(kind.check(entry, model, trusted=True, backends=backends)) - by_itself, servers)
    return [
        replace(each, severity=Severity.WARNING, what=f"{', '.join(dict.fromkeys(where))}: {each.what}")
        for each, where in found.items()
    ]


def memory_unknown(entry: Path) -> list[Finding]:
    """Return an advisory if an entry's files do not show how much memory it needs, and an environment of
    TIDEGATE_ENVIRONMENTS does not declare it."""
    kind = kind_of_entry(entry)
    config = entry / kind.configs.CONFIG
    text = config.read_text(errors="replace") if config.is_file() else ""
    files = [StoredFile(path, at.stat().st_size) for path, at in below(entry) if at.is_file(follow_symlinks=False)]
    if (backend := kind.code_backend(text, files)) is None:
        return []
    known = load().environments if os.environ.get(ENVIRONMENTS, "").strip() else ()
    mine = [home for of in known for home in homes(of) if home.model.name == entry.resolve().name]
    return [] if mine and all(home.model.footprint_bytes for home in mine) else [_memory_unknown(backend)]


def _memory_unknown(backend: str) -> Finding:
    what = f"its files do not show how much memory it needs: the backend {backend} can load weights from elsewhere"
    why = (
        "in an on-demand pool, the first load reserves the median size of the pool's models, runs alone and is "
        "measured. In a preload pool, nothing is checked"
    )
    return advisory(what, "", why, "have the platform admin declare its footprint under `models` of the definition")


def _server_has(of: Sequence[Placement]) -> ServerHas:
    gpus = [home.pool.gpus for home in of if home.pool.gpus is not None]
    releases = [home.server.release for home in of if home.server.release]
    return {
        "backends": _backends(of),
        "gpus": min(gpus, default=None) if all(home.pool.gpu for home in of) else 0,
        "release": min(releases, default=None),
    }


def check_staged(staged: Path, target: Target, repository: Repository) -> list[Finding]:
    """Check a fetched entry against its servers and together with the models in the repository."""
    bring = partial(command_into, target.homes[0].environment)
    return target.kind.check_staged(staged, target.model, repository, bring=bring, **_server_has(target.homes))


def check_fits(target: Target, entry_config: str, manifest: Manifest, peak: int) -> list[Finding]:
    """Check an entry against the pools that will serve it. `peak` versions are in memory at one time."""
    files = [StoredFile(each.path, each.size) for each in manifest.files]
    found = target.kind.check_backend(target.model, entry_config, files, _backends(target.homes))
    which, code = target.kind.needs_gpu(entry_config), target.kind.code_backend(entry_config, files)
    do = "have the platform admin provide a pool with a GPU, or configure the model for the CPU"
    for home in target.homes:
        if which is not None and not home.pool.gpu:
            what = f"the backend {which} requires a GPU, but the pool {_pool(home)} has none"
            found.append(error(what, target.kind.configs.CONFIG, do=do))
        if code is not None and home.model.footprint_bytes is None:
            found.append(_memory_unknown(code))
        else:
            found += _in_memory(home, manifest, peak)
    return list(dict.fromkeys(found))


def _backends(of: Iterable[Placement]) -> set[str] | None:
    """Return the backends that every server has, or None if a server declares none."""
    has = [set(home.server.backends) for home in of]
    return set.intersection(*has) if all(has) else None


def _in_memory(home: Placement, manifest: Manifest, peak: int) -> list[Finding]:
    memory = home.pool.capacity_bytes or home.pool.memory_bytes
    if memory is None:
        return []
    mine, has = home.model, f"but the pool {_pool(home)} has {_mib(memory)}"
    needs, how = mine.footprint_bytes, "declared"
    if needs is None:
        size = sum(file.size for file in manifest.files if file.path.startswith(f"{ENTRY_VERSION}/"))
        needs, how = int(size * DISK_FACTOR), "estimated from its files"
    if needs > memory:
        do = "reduce the model's size, or have the platform admin provide a larger slice"
        return [error(f"it needs {_mib(needs)} ({how}), {has}", "", do=do)]
    others_need = 0
    if home.pool.loading == "preload":  # all of its models are in memory
        of_pool = [each for each in home.plane.models if (each.server, each.pool) == (mine.server, mine.pool)]
        others_need = sum(each.footprint_bytes or 0 for each in of_pool if each.name != mine.name)
    if needs * peak + others_need <= memory:
        return []
    others = f", in addition to the {_mib(others_need)} declared for the pool's other models" if others_need else ""
    may = f"during the deployment {peak} versions are in memory, which can need {_mib(needs * peak)}"
    why = "Triton loads every version a second time when the configuration or an alias changes"
    do = "have the platform admin provide a larger slice, or remove `alias` so that the newest version is called"
    return [warning(f"{may} ({how} for each){others}, {has}", "", why, do)]


def _pool(home: Placement) -> str:
    return f"{home.plane.name}/{home.server.name}/{home.pool.name}"


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
