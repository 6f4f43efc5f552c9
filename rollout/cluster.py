"""`up --cluster` and `down`: applies the stacks of one cluster with an engine, or removes them without their data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stacks.command import NO_ENGINE, WRONG_INPUT, CommandError, ExitStatus, in_shell, tidegate
from stacks.problems import advisory_text, escaped
from stacks.stack import Definition, Stack, StackId
from stacks.validate import read_definition

from . import engines, preflight
from .changes.compare import KEPT
from .contexts import on_cluster, refuse_tags, require_named
from .engines import Bundle, Engine
from .engines.ownership import owner_of
from .guardrails import enforce, findings
from .kubectl import Kubectl
from .live import INSTANCE, PART_OF, namespace_of
from .orphans import Orphan, orphans_in
from .terminal import note


@dataclass(frozen=True)
class Request:
    """The parameters of `up` or `down`."""

    definition: Path
    context: str  # A kubeconfig context or a data plane.
    stack: str | None = None
    engine: str | None = None
    adopt: bool = False
    keep_going: bool = False  # Even if the cluster lacks prerequisites.


def bring_up(request: Request, outcome: ExitStatus) -> None:
    """Apply the stacks of a cluster, one after the other. Stop at the first that fails."""
    definition = read_definition(request.definition)
    require_named(definition, request.context)
    stacks = on_cluster(definition, request.context, request.stack)
    refuse_tags(definition, stacks)
    Kubectl(stacks[0].data_plane.context_name).query_ahead()
    bundles, engine = _checked(request, definition, stacks)
    needed = [(each.stack, each.rendered.objects) for each in bundles]
    preflight.ensure_ready(stacks[0].data_plane.context_name, needed, keep_going=request.keep_going)
    _up(bundles, engine, outcome)


def _checked(request: Request, definition: Definition, stacks: Sequence[Stack]) -> tuple[Sequence[Bundle], Engine]:
    """Return the bundles and the engine, after all checks that need no cluster. Raise CommandError."""
    engine = _engine(request, stacks, stacks[0].data_plane.context_name)
    rendering = engine.render(stacks, definition)
    if text := advisory_text(definition.advisories):
        note(text)
    if text := enforce(findings(rendering), "nothing was changed"):
        note(text)
    both = zip(stacks, rendering, strict=True)
    return [Bundle(stack, rendered, definition.lock, request.definition) for stack, rendered in both], engine


def _up(bundles: Sequence[Bundle], engine: Engine, outcome: ExitStatus) -> None:
    stacks = [bundle.stack for bundle in bundles]
    context = stacks[0].data_plane.context_name
    names = ", ".join(stack.name for stack in stacks)
    note(f"Bringing up {names} in {escaped(context)} with {engine.title} …")
    unchanged = []
    for done, (stack, bundle) in enumerate(zip(stacks, bundles, strict=True), 1):
        outcome.text = f"stack {stack.name} may be partly up. Run the same command again"
        try:
            if not engine.up(bundle):
                unchanged.append(stack.name)
        except CommandError as error:
            rest = ", ".join(stack.name for stack in stacks[done:])
            not_tried = f"\nNot tried: {rest}." if rest else ""
            raise CommandError(f"stack {stack.name} is not up: {error}{not_tried}", error.code) from None
    for name in unchanged:
        print(f"Nothing changed: {name} is as declared.")
    print(f"Up in {escaped(context)}: {names}.")


def _engine(request: Request, stacks: Sequence[Stack], context: str) -> Engine:
    try:
        return engines.find_engine(request.engine, adopt=request.adopt)
    except CommandError as error:
        if error.code != NO_ENGINE:
            raise
        lines = [
            f"Nothing was changed, because there is no engine: {error}",
            "  Install Pulumi (https://www.pulumi.com/docs/install) or Helm (https://helm.sh/docs/intro/install),",
            "  and run this again. Or apply the rendered files:",
            f"      {tidegate('render', request.definition, stack=request.stack)}",
        ]
        kubectl = f"      kubectl --context {in_shell(context)} apply --server-side -f"
        lines += [f"{kubectl} {in_shell('build/rendered/' + stack.name)}/" for stack in stacks]
        raise CommandError("\n".join(lines), NO_ENGINE) from None


def take_down(request: Request, outcome: ExitStatus, *, sure: bool = False) -> None:
    """Remove stacks. For those of production, `sure` must be true."""
    definition = read_definition(request.definition)
    require_named(definition, request.context)
    described, homes = True, list[StackId]()
    try:
        homes += on_cluster(definition, request.context, request.stack)
    except CommandError as error:
        described, orphans = False, orphans_in(definition, request.context, request.stack, error)
        homes += [each.home for each in orphans if each.goes_by_name]
        if not (request.stack and homes):  # orphans are removed one by one
            raise CommandError("\n".join(["Nothing was changed.", *_listed(orphans)]), WRONG_INPUT) from None
    production = [home.name for home in homes if home.environment.production]
    if production and not sure:
        wanted = {"cluster": request.context, "stack": request.stack, "engine": request.engine}
        command = tidegate("down", request.definition, **wanted, yes=True)
        whose = f"{', '.join(production)} {'is' if len(production) == 1 else 'are'} production"
        what = f"{whose}: no model there would be served any more. Nothing was changed."
        raise CommandError(f"{what}\nTo remove it, run {command}", WRONG_INPUT)
    kube = Kubectl(homes[0].data_plane.context_name)
    for home in homes:
        _down(request, home, kube, outcome, described=described)
    if described and not request.stack:
        for text in _listed(orphans_in(definition, request.context, None)):
            note(text)


def _listed(orphans: Sequence[Orphan]) -> list[str]:
    return [f"{each.home.name} {each.words}\n  {each.command}".rstrip() for each in orphans]


def _down(request: Request, stack: StackId, kube: Kubectl, outcome: ExitStatus, *, described: bool) -> None:
    owner = owner_of(kube, stack)
    if owner is None:
        print(f"{stack.name} does not exist: {escaped(kube.context)} has no namespace {stack.namespace}.")
        return
    # The engine that brought it up takes it down, whatever other engine is installed here.
    wanted = request.engine or (owner.engine if owner.engine in engines.FINDERS else None)
    engine = engines.find_engine(wanted)
    note(f"Taking {stack.name} in {escaped(kube.context)} down with {engine.title} …")
    outcome.text = f"stack {stack.name} may be partly down. Run the same command again"
    try:
        engine.down(stack, request.definition)
    except CommandError as error:
        raise CommandError(f"stack {stack.name} is not down: {error}", error.code) from None
    print(f"Down in {escaped(kube.context)}: {stack.name}.")
    _print_kept(stack, kube, described=described)
    if engine.name == "pulumi" and not described:
        note(f"Pulumi's state still lists them. To remove them from it, run `pulumi stack rm --force {stack.name}`.")


def _print_kept(stack: StackId, kube: Kubectl, *, described: bool) -> None:
    selector = f"{PART_OF}=tidegate,{INSTANCE}={stack.environment.made_as}"
    found = kube.find([f"{kind.lower()}s" for kind in KEPT], "-A", "-l", selector)
    kept = [(item["kind"], item["metadata"]["name"]) for item in found if namespace_of(item) == stack.namespace]
    if not kept:
        return
    print(f"Its datasets stay{', and the next `tidegate up` uses them again' if described else ''}:")
    for kind, name in sorted(kept, key=lambda each: each[0] == "Namespace"):
        print(f"  {kind} {name}{', which holds the claims and your Secrets' if kind == 'Namespace' else ''}")
    print("To delete them for good, with every Secret in the namespace (the files on the storage itself stay):")
    for kind in ("Namespace", "PersistentVolume"):  # a claim goes with its namespace
        if names := [in_shell(name) for of, name in kept if of == kind]:
            print(f"  kubectl --context {in_shell(kube.context)} delete {kind.lower()} {' '.join(names)}")
