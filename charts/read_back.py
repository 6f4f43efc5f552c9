"""Values as the definition that gives them, so that the definition's own rules judge them, and none is written twice.

It is the way back from `stacks.resolve`, as far as there is one: what several data planes or environments must agree
on stands in no values, and neither do the writers of a dataset, beyond what the guardrails are told.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from policies.guardrails import ANNOTATION
from policies.guardrails.settings import Settings, settings_of
from stacks.definition import DataPlane, Environment, Platform
from stacks.definition.environment import Reach
from stacks.definition.images import POLICY_IMAGE, PROXY_IMAGE
from stacks.definition.policies import SHIPPED
from stacks.load import Document, PathInTree, frozen
from stacks.overlays import names_twice, without_nulls
from stacks.problems import Problem, in_order
from stacks.reading.tree import Node
from stacks.resolve.datasets import EFS_DRIVER
from stacks.resolve.kinds import KINDS
from stacks.resolve.settings import ANNOTATION as DEFINITION
from stacks.rules import STACK_RULES, broken
from stacks.schema_errors import problems_from
from stacks.stack import Stack

Path = tuple[str | int, ...]
Tree = dict[str, Any]

ENVIRONMENT = "environment"  # Key of the part that is no platform's.


def rule_problems(document: Document, chart_values: str) -> list[Problem]:
    """Return what the definition's rules say of values, errors and advisories, in the order of the file.

    `chart_values` is the text of the chart's `values.yaml`, over which Helm lays the document. The values must have
    the form that the schema asks for.
    """
    source = ReadBack(document, _laid_over(yaml.safe_load(chart_values), document.tree))
    problems = [source.twice(*each) for each in names_twice(source.tree)]
    try:
        environment = Environment.model_validate(frozen(source.tree[ENVIRONMENT]))
    except ValidationError as error:
        return in_order([*problems, *problems_from(error, source, Environment, [ENVIRONMENT])])
    tree = {key: part for key, part in source.tree.items() if key != ENVIRONMENT}
    try:
        platform = Platform.model_validate(frozen(tree))
    except ValidationError as error:
        return in_order([*problems, *problems_from(error, source, Platform)])
    plane = DataPlane.model_validate({"name": "values", "environments": (environment.name,)})
    problems += broken(STACK_RULES, _StackOfValues(environment, plane, platform, source))
    return in_order(dict.fromkeys(problems))


class _StackOfValues(Stack):
    """What values say of a stack: all that follows from something else stands in them."""

    def reach(self) -> tuple[Reach, ...]:
        """Return what is said; a way that nobody wrote is none, whatever an address says."""
        return self.platform.network.reach


class ReadBack(Document):
    """A definition of one environment that was read back from values, and knows where in them each part stands."""

    def __init__(self, document: Document, values: Tree) -> None:
        self.document = document
        self._origins: dict[Path, Path] = {}  # Places of the definition that are called otherwise in the values.
        super().__init__(without_nulls(self._definition(values)), document.file, document.root, "value")

    def node(self, path: PathInTree) -> tuple[Node, bool]:
        """Return what is known of a part of the definition in the values."""
        return self.document.node(self._origin(tuple(path)))

    def get(self, path: PathInTree) -> Any:
        """The value of the values at `path`, or None."""
        return self.document.get(self._origin(tuple(path)))

    def path_text(self, path: PathInTree) -> str:
        """The path in the values, in words for people."""
        return self.document.path_text(self._origin(tuple(path)))

    def twice(self, path: Path, name: str, section: str) -> Problem:
        """A problem with the name of a list item that an earlier one has."""
        items = _at(self.tree, path[:-2])
        first = next(number for number, item in enumerate(items) if item.get("name") == name)
        where = f"The first is at {self.position((*path[:-2], first))}."
        do = (
            "A model is served by one pool of one server, or each version by one."
            if section == "models"
            else "Give one of them another name."
        )
        return self.problem(path, f'"{name}" stands twice in {section}', where, do)

    def _origin(self, path: Path) -> Path:
        known = next((path[:end] for end in range(len(path), 0, -1) if path[:end] in self._origins), ())
        return self._origins.get(known, ()) + path[len(known) :]

    def _moved(self, tree: Tree, place: Path, old: str, new: str, to: Path | None = None) -> Any:
        """Take a key out of a tree; its value is `new` in the definition, at `to`, or where the tree is."""
        self._origins[(*(place if to is None else to), new)] = (*place, old)
        return tree.pop(old, None)

    def _renamed(self, part: Tree, place: Path, to: Path) -> None:
        """Turn what something is called into its name, and the name that its objects have into the one of before."""
        if part.get("called") is None:
            self._origins[(*to, "name")] = (*place, "name")
            part.pop("called", None)
        else:
            part["formerly"] = [self._moved(part, place, "name", "formerly", to)]
            part["name"] = self._moved(part, place, "called", "name", to)

    def _definition(self, values: Tree) -> Tree:
        values = copy.deepcopy(values)
        network: Tree = values.setdefault("network", {})
        prometheus = self._moved(network, ("network",), "prometheus", "prometheus", ("monitoring",))
        monitoring = values.get("monitoring")
        (monitoring or {}).pop("prices", None)  # of which no rule of values asks
        if values.get("mesh") is not None:
            values["mesh"]["mode"] = "istio"
        models: list[Tree] = []
        called = {server["name"]: server["called"] for server in values["servers"] if server.get("called")}
        for reach in network.get("reach") or []:
            if reach.get("server") in called:
                reach["server"] = called[reach["server"]]
        return {
            ENVIRONMENT: self._environment(values),
            "images": list(self._images(values)),
            "evictionPolicies": list(self._policies(values)),
            "datasets": list(self._datasets(values)),
            "servers": [self._server(values, number, models) for number in range(len(values["servers"]))],
            "models": models,
            "proxy": self._proxy(values["proxy"]),
            "network": network,
            "monitoring": {**(monitoring or {}), "operator": monitoring is not None, "prometheus": prometheus},
            **{key: values.get(key) for key in ("pullSecrets", "pods", "domino", "mesh")},
        }

    def _environment(self, values: Tree) -> Tree:
        namespace: Tree = values["namespace"]
        annotations: Tree = namespace.setdefault("annotations", {})
        annotations.pop(DEFINITION, None)  # of which no rule of values asks
        held_to = (
            settings_of(annotations.pop(ANNOTATION)) if ANNOTATION in annotations else unsaid(values["proxy"]["image"])
        )
        self._renamed(values, (), (ENVIRONMENT,))
        places = {"namespace": ("namespace", "name")}
        places |= {key: ("namespace", key) for key in ("labels", "annotations")}
        self._origins |= {(ENVIRONMENT, key): place for key, place in places.items()}
        return {
            **{key: values[key] for key in ("name", "formerly") if key in values},
            "namespace": namespace.pop("name"),
            **namespace,
            "production": held_to.kind == "production",
            "local": held_to.kind == "local",
        }

    def _images(self, values: Tree) -> Iterator[Tree]:
        places: dict[str, Path] = {PROXY_IMAGE: ("proxy", "image"), POLICY_IMAGE: ("evictionPolicyImage",)}
        places |= {f"server-{number}": ("servers", number, "image") for number in range(len(values["servers"]))}
        self._origins["images",] = places[POLICY_IMAGE]  # all others are there: the schema asks for them
        there = {name: place for name, place in places.items() if _at(values, place) is not None}
        for number, (name, place) in enumerate(there.items()):
            self._origins["images", number] = place
            reference, _, digest = _at(values, place).partition("@")
            repository, colon, tag = (
                reference.rpartition(":") if ":" in reference.rpartition("/")[2] else (reference, "", "")
            )
            yield {"name": name, "repository": repository, "tag": tag if colon else "pinned" if digest else None}

    def _policies(self, values: Tree) -> Iterator[Tree]:
        """Yield the policies of one's own that pools name, with the settings that these say, whatever they are."""
        found: dict[str, Tree] = {}
        for _, _, place in _pools(values):
            pool = _at(values, place)
            settings = self._moved(pool, place, "policySettings", "policySettings", (*place, "loading"))
            loading = pool["loading"]
            name = loading.get("policy")
            if settings:
                loading["policySettings"] = settings
            if name not in (None, *SHIPPED):
                if name not in found:
                    self._origins["evictionPolicies", len(found)] = (*place, "loading", "policy")
                    found[name] = {"name": name, "settings": []}
                known = found[name]["settings"]
                known += [{"name": each} for each in settings or {} if {"name": each} not in known]
        yield from found.values()

    def _datasets(self, values: Tree) -> Iterator[Tree]:
        datasets: list[Tree] = values.get("datasets") or []
        for number, dataset in enumerate(datasets):
            place: Path = ("datasets", number)
            source: Tree = dataset.pop("source")
            if source.get("driver") == EFS_DRIVER:
                file_system, _, point = source["volumeHandle"].partition("::")
                handle = (*place, "source", "volumeHandle")
                self._origins |= {(*place, key): handle for key in ("fileSystemId", "accessPointId")}
                source = {"kind": "efs", "fileSystemId": file_system, "accessPointId": point or None}
            self._origins |= {
                (*place, key): (*place, "source", key) for key in source if (*place, key) not in self._origins
            }
            yield {**dataset, **source}
        for number, (name, claim) in enumerate(_given(values).items()):
            self._origins["datasets", len(datasets) + number] = ("claims", number)
            self._origins["datasets", len(datasets) + number, "claimName"] = ("claims", number, "name")
            yield {"name": name, "kind": "claim", "claimName": claim}

    def _server(self, values: Tree, number: int, models: list[Tree]) -> Tree:
        place: Path = ("servers", number)
        server: Tree = values["servers"][number]
        self._renamed(server, place, place)
        server["image"] = f"server-{number}"
        repository: Tree = server["repository"]
        if repository.pop("kind") == "volume":
            claim = self._moved(repository, (*place, "repository"), "claim", "dataset")
            given = (name for name, each in _given(values).items() if each == claim)
            made = any(dataset["name"] == claim for dataset in values.get("datasets") or [])
            repository["dataset"] = claim if made else next(given, claim)
            repository["path"] = self._moved(repository, (*place, "repository"), "subPath", "path")
            repository.pop("gcsFuse", None)  # which follows from the dataset
        moved = KINDS[server.get("kind") or next(iter(KINDS))].read_back(server)
        self._origins |= {(*place, *new): (*place, *old) for new, old in moved.items()}
        for index, pool in enumerate(server["pools"]):
            inside = (*place, "pools", index)
            self._renamed(pool, inside, inside)
            _without_replicas(pool)
            for at, model in enumerate(pool.pop("models", None) or []):
                said = {**model, "server": server["name"], "pool": pool["name"]}
                self._model(said, (*inside, "models", at), models)
        return server

    def _model(self, model: Tree, place: Path, models: list[Tree]) -> None:
        """Add a model of a pool: to what another pool serves of it where both have versions, else as one of its own."""
        for number, other in enumerate(models):
            alike = all(other.get(key) == model.get(key) for key in ("name", "server"))
            apart = other.get("versions") and model.get("versions")
            if alike and apart and not (other.get("mirror") and model.get("mirror")):
                there: list[Tree] = other["versions"]
                for at, share in enumerate(model["versions"]):
                    self._origins["models", number, "versions", len(there)] = (*place, "versions", at)
                    self._origins["models", number, "versions", len(there), "pool"] = place[:-2]
                    there.append({**share, "pool": model["pool"]})
                if model.get("mirror"):
                    self._origins["models", number, "mirror"] = (*place, "mirror")
                    other["mirror"] = model["mirror"]
                return
        self._origins["models", len(models)] = place
        models.append(model)

    def _proxy(self, proxy: Tree) -> Tree:
        del proxy["image"]
        _without_replicas(proxy)
        tls = proxy.get("tls")
        if tls and (certificate := tls.pop("certificate", None)) is not None:
            self._origins |= {("proxy", "tls", key): ("proxy", "tls", "certificate", key) for key in certificate}
            proxy["tls"] = {"kind": "cert-manager", **certificate}
        elif tls:
            proxy["tls"] = {"kind": "secret", **tls}
        return proxy


def unsaid(proxy_image: str) -> Settings:
    """Return what values are held to that do not say it: production, but where images are built on the node itself.

    That is a trial on one machine, such as the chart's own values: no other node could pull the image.
    """
    return Settings("local") if proxy_image.startswith("localhost/") else Settings()


def _given(values: Tree) -> dict[str, str]:
    """Return the claims that exist already, by names for their datasets, which have none in the values."""
    made = {dataset["name"] for dataset in values.get("datasets") or []}
    claims = [claim["name"] for claim in values.get("claims") or []]
    return {f"claim-{n}" if "." in claim or claim in made else claim: claim for n, claim in enumerate(claims)}


def _pools(values: Tree) -> list[tuple[int, int, Path]]:
    """Return of each pool the number of its server, its own, and where it stands."""
    servers = enumerate(values["servers"])
    pools = [(number, inner) for number, server in servers for inner in range(len(server["pools"]))]
    return [(server, pool, ("servers", server, "pools", pool)) for server, pool in pools]


def _at(tree: Any, path: Path) -> Any:
    for step in path:
        tree = tree.get(step) if isinstance(tree, Mapping) else tree[step]
    return tree


def _without_replicas(part: Tree) -> None:
    """Leave out the number of replicas where an autoscaler owns it: in the values it is without effect."""
    if part.get("autoscaling") is not None:
        part.pop("replicas", None)


def _laid_over(under: Any, over: Any) -> Any:
    """Return values laid over others as Helm does it: mappings key by key, and null takes a key away."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    merged = {key: _laid_over(under[key], value) if key in under else value for key, value in over.items()}
    return {key: value for key, value in {**under, **merged}.items() if value is not None}
