"""What differs between two environments: versions, their files and configurations, and how they are called."""

from collections.abc import Iterator

from tidegate_contracts.environments import Environment, ModelFacts
from tidegate_contracts.message import Message

from ..environments import homes
from ..errors import NotFoundError
from ..kinds import kind_of_server
from ..registry import RegisteredVersion
from ..repository import Configs
from .context import Context
from .plan import config_text


class Difference(Message):
    """One thing that is otherwise in the other environment."""

    model: str
    what: str
    one: str
    other: str


def diff(context: Context, one: str, other: str, model: str | None = None) -> list[Difference]:
    """Return what differs between two environments, of one model if it is said. Raises TidegateError.

    Versions are those that the registry's aliases of the environments' names say.
    """
    first, second = context.environment(one), context.environment(other)
    names = _models(first) | _models(second)
    if model is not None and model not in names:
        raise NotFoundError(f"neither {one} nor {other} has a model {model}")
    found: list[Difference] = []
    for name in [model] if model is not None else sorted(names):
        found += _model(context, first, second, name)
    return found


def _models(of: Environment) -> set[str]:
    return {facts.name for plane in of.planes for facts in plane.models}


def _model(context: Context, one: Environment, other: Environment, model: str) -> Iterator[Difference]:
    def differ(what: str, first: str, second: str) -> Difference:
        return Difference(model=model, what=what, one=first, other=second)

    has = [model in _models(of) for of in (one, other)]
    if not all(has):
        yield differ("the definition", *("names it" if there else "does not name it" for there in has))
    else:
        ways = [_ways(of, model) for of in (one, other)]
        for what in ways[0]:
            if ways[0][what] != ways[1][what]:
                yield differ(what, ways[0][what], ways[1][what])
    versions = [_version(context, of, model) for of in (one, other)]
    numbers = [f"version {each.number}" if each is not None else "none" for each in versions]
    if numbers[0] != numbers[1]:
        yield differ("version", *numbers)
    first, second = versions
    if first is not None and second is not None and first.manifest_sha256 != second.manifest_sha256:
        serving = next(of for of in (one, other) if model in _models(of))
        server = homes(serving, model)[0].server
        configs = kind_of_server(server.kind, server.name).configs
        yield from (differ(*each) for each in _content(context, first, second, configs))


def _ways(of: Environment, model: str) -> dict[str, str]:
    """Return how an environment serves a model, in words; of each data plane where they differ."""
    found = homes(of, model)

    def said(words: list[str]) -> str:
        if len(set(words)) == 1:
            return words[0]
        return "; ".join(f"{home.plane.name}: {each}" for home, each in zip(found, words, strict=True))

    return {
        "traffic": said([_traffic(home.model) for home in found]),
        "mirror": said([
            f"{home.model.mirror.percent} % to version {home.model.mirror.version}" if home.model.mirror else "none"
            for home in found
        ]),
        "footprint": said([_footprint(home.model) for home in found]),
        "loading": said([
            next((pool.loading for pool in home.server.pools if pool.name == home.model.pool), "?") for home in found
        ]),
    }  # fmt: skip


def _traffic(model: ModelFacts) -> str:
    if model.alias is not None:
        return f"alias {model.alias}"
    shares = ", ".join(f"{share.weight} % version {share.version}" for share in model.versions)
    return shares or "the newest version"


def _footprint(model: ModelFacts) -> str:
    return "not declared" if model.footprint_bytes is None else f"{model.footprint_bytes} bytes"


def _version(context: Context, of: Environment, model: str) -> RegisteredVersion | None:
    try:
        number = context.registry.alias(model, of.name)
        return context.registry.version(model, number) if number is not None else None
    except NotFoundError:
        return None


def _content(
    context: Context, one: RegisteredVersion, other: RegisteredVersion, configs: Configs
) -> Iterator[tuple[str, str, str]]:
    files = [{file.path: file for file in context.registry.manifest(each).files} for each in (one, other)]
    for path in sorted(files[0].keys() | files[1].keys()):
        sides = [each.get(path) for each in files]
        digests = [side.sha256 if side is not None else None for side in sides]
        if digests[0] != digests[1]:
            yield (f"file {path}", *(f"{s.size} bytes, {s.sha256[:12]}" if s else "not there" for s in sides))  # type: ignore[misc]
    if all(configs.CONFIG in each for each in files):
        texts = [
            config_text(
                context.registry.read_file(each, configs.CONFIG),
                configs.CONFIG,
                f"version {each.number} of {each.model}",
            )
            for each in (one, other)
        ]
        for difference in configs.config_differences(*texts):
            field, _, change = difference.partition(": ")
            before, _, after = change.partition(" → ")
            yield f"{configs.CONFIG} {field}", before, after
