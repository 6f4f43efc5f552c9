"""The steps by which a version comes into one repository. Each can be done again: what is done already costs a look."""

from collections.abc import Sequence

from tidegate_contracts.manifest import Manifest

from ..errors import IntegrityError
from ..kinds import Kind
from ..registry import RegisteredVersion
from .checks import check_fits, check_staged, refuse
from .context import Context
from .plan import Plan, config_text, published_entry_config
from .ready import answers, until_served


def entry_config_of(context: Context, version: RegisteredVersion, manifest: Manifest, kind: Kind) -> str:
    """Return the text of the configuration as it was registered; an empty one where the entry has none."""
    config = kind.configs.CONFIG
    if all(file.path != config for file in manifest.files):
        return ""  # the server makes one up
    where = f"{context.registry.where}: version {version.number} of {version.model}"
    return config_text(context.registry.read_file(version, config), config, where)


def check(
    context: Context,
    plan: Plan,
    version: RegisteredVersion,
    manifest: Manifest,
    entry_config: str,
    *,
    replace: bool,
) -> list[str]:
    """Have the files here or at hand, and everything looked at, before anything is written. Returns warnings."""
    repository, model, number = plan.repository, version.model, version.number
    cannot = f"{model} version {number} cannot be served there"
    notes = refuse(check_fits(plan.place, entry_config, manifest, plan.peak), cannot, repository.where)
    if plan.is_there(manifest):
        with context.progress(f"verifying version {number} in {repository.where}", manifest.size) as advance:
            wrong = repository.differences(model, number, manifest, advance)
        if wrong:
            raise IntegrityError(
                f"version {number} in the repository is not what was registered: {'; '.join(wrong[:5])}",
                where=f"{repository.where}/{model}",
                do="find out who changed it; `tidegate verify` shows all of it. A version is never written over: if "
                "nobody is served by it, remove it with `tidegate prune` and run this again",
            )
    else:
        staged = repository.staging(model, number, manifest.size)
        with context.progress(f"fetching {model} version {number}", manifest.size) as advance:
            context.registry.fetch(version, staged, advance)
        notes += refuse(check_staged(staged, plan.place, repository), cannot, repository.where)
    if not replace and plan.old is not None and plan.old != number:
        old_config = published_entry_config(repository, model, plan.old)
        notes += refuse(
            plan.place.kind.check_beside(old_config, entry_config, plan.old, number), cannot, repository.where
        )
    return notes


def publish(context: Context, plan: Plan, version: RegisteredVersion, manifest: Manifest) -> None:
    """Lay the version into the repository, and have Triton serve it beside the old one."""
    repository, model, number = plan.repository, version.model, version.number
    if plan.is_there(manifest):
        # What serves already, and is as it was registered, needs no second configuration on its way.
        if plan.fresh:
            repository.write_config(model, plan.first)
        return
    context.tell(f"publishing {model} version {number} in {repository.where}")
    with context.progress(f"publishing version {number}", manifest.size) as advance:
        repository.publish(
            model, number, repository.staging(model, number, manifest.size), manifest, plan.first, advance
        )


def try_out(context: Context, plans: Sequence[Plan], version: RegisteredVersion) -> list[str]:
    """Wait until the version serves everywhere, and have it answer its golden request."""
    notes = []
    golden = context.registry.golden(version)
    for plan in plans:
        for use in plan.place.uses:
            context.tell(f"waiting until version {version.number} serves on {use.home.plane.name}")
            if (note := until_served(context, use, version.number, fresh=plan.fresh)) is not None:
                notes.append(note)
            elif golden is not None:
                answers(context, use, version.number, golden)
                context.tell(f"version {version.number} answers its golden request on {use.home.plane.name}")
    if golden is None:
        notes.append("no golden request was registered with it, so it was not called")
    return notes


def put_back(plan: Plan, model: str) -> None:
    """Have Triton serve what it served before, and nothing else; the version stays, for the next run."""
    repository = plan.repository
    if repository.config(model) == plan.before:
        return  # nothing was written
    if plan.before is not None and repository.configs.read_published(plan.before).served:
        repository.write_config(model, plan.before)
    else:
        repository.withdraw(model)  # Triton would try to load it again and again
