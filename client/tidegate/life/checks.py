"""Whether an entry fits where it is to go: asked before anything is written there."""

from collections.abc import Collection
from pathlib import Path

from tidegate_contracts.eviction import DISK_FACTOR
from tidegate_contracts.manifest import ENTRY_VERSION, Manifest

from ..errors import UsageError
from ..findings import Finding, error, errors, warning
from ..repository import Repository
from .target import Place, Use


def refuse(findings: Collection[Finding], what: str, where: str) -> list[str]:
    """Raise UsageError when there are errors among them; return the warnings as sentences."""
    bad = errors(findings)
    if bad:
        raise UsageError(
            what,
            where=where,
            why="".join(
                f"\n    {each.where or where}: {each.what}" + (f" ({each.why})" if each.why else "") for each in bad
            ),
            do="; ".join(dict.fromkeys(each.do for each in bad if each.do))
            or "correct the entry and register it again; `tidegate model check` shows the same",
        )
    return [f"{each.where}: {each.what}" if each.where else each.what for each in findings]


def check_staged(staged: Path, place: Place, repository: Repository) -> list[Finding]:
    """Check an entry that was fetched, for the servers that read it there, and beside the models that are there."""
    has = [set(use.home.server.backends) for use in place.uses]
    backends = set.intersection(*has) if all(has) else None  # where one does not say, it is not known
    gpu = all(use.pool.gpu for use in place.uses)
    return place.kind.check_staged(staged, place.model, repository, backends=backends, gpu=gpu)


def check_fits(place: Place, entry_config: str, manifest: Manifest, peak: int) -> list[Finding]:
    """Check an entry against the pools that are to serve it; `peak` versions are loaded at one time."""
    found: list[Finding] = []
    which = place.kind.needs_gpu(entry_config)
    do = "ask the platform admin for a pool with a GPU, or let it run on the processor"
    for use in place.uses:
        if which is not None and not use.pool.gpu:
            what = f"the backend {which} wants a GPU, and the pool {_pool(use)} has none"
            found.append(error(what, place.kind.configs.CONFIG, do=do))
        found += _in_memory(use, manifest, peak)
    return list(dict.fromkeys(found))


def _in_memory(use: Use, manifest: Manifest, peak: int) -> list[Finding]:
    model, pool = use.home.model, use.pool
    room = pool.capacity_bytes or pool.memory_bytes
    if room is None:
        return []
    where = _pool(use)
    size = sum(file.size for file in manifest.files if file.path.startswith(f"{ENTRY_VERSION}/"))
    needs = model.footprint_bytes if model.footprint_bytes is not None else int(size * DISK_FACTOR)
    how = "declared" if model.footprint_bytes is not None else "estimated from its files"
    if needs > room:
        return [
            error(
                f"it needs {_mib(needs)} ({how}), and the pool {where} has room for {_mib(room)}",
                "",
                do="make the model smaller, or ask the platform admin for a pool of a larger slice",
            )
        ]
    beside = _beside(use) if pool.loading == "preload" else 0
    if needs * peak + beside > room:
        others = f", beside the {_mib(beside)} that the pool's other models are declared to need" if beside else ""
        why = "Triton loads every version again, beside itself, when the configuration or an alias changes"
        return [
            warning(
                f"while it comes in, {peak} versions are loaded at one time, which may need {_mib(needs * peak)} "
                f"({how} for each){others}, and the pool {where} has room for {_mib(room)}",
                "",
                why,
                "ask the platform admin for a larger slice, or, where an alias routes the model, to let the newest "
                "version be called instead",
            )
        ]
    return []


def _beside(use: Use) -> int:
    """Return the bytes that the other models of a pool, which has them all at one time, are declared to need."""
    mine = use.home.model
    return sum(
        each.footprint_bytes or 0
        for each in use.home.plane.models
        if (each.server, each.pool) == (mine.server, mine.pool) and each.name != mine.name
    )


def _pool(use: Use) -> str:
    return f"{use.home.plane.name}/{use.home.server.name}/{use.pool.name}"


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
