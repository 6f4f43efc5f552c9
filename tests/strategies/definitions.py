"""Any valid definition, as the tree of its YAML file. The values fulfil the rules by construction."""

import json
from collections.abc import Sequence
from datetime import date
from typing import Any, get_args

from hypothesis import strategies as st
from tidegate_contracts.environments import is_alias

from policies.guardrails import BY_NAME
from policies.guardrails.settings import Severity
from stacks.images_lock import ImagesLock, PinnedImage
from stacks.load import parse
from stacks.stack import Definition
from stacks.validate import validate

from .platform import (
    PRODUCTS,
    Tree,
    datasets,
    dominos,
    engines,
    labels,
    meshes,
    models,
    monitorings,
    names,
    networks,
    proxies,
    servers,
    sometimes,
)


@st.composite
def definition_trees(draw: st.DrawFn) -> Tree:
    """Any valid definition: one to three environments over one to three data planes."""
    dataset_names = draw(st.lists(names(8), min_size=1, max_size=2, unique=True))
    # Without dashes: pools of two servers, such as a-b + c and a + b-c, would make the same Kubernetes names.
    server_names = draw(
        st.lists(st.from_regex(r"[a-z][a-z0-9]{1,7}", fullmatch=True), min_size=1, max_size=2, unique=True)
    )
    kinds = st.sampled_from([servers, servers, engines])
    platform_servers = [draw(draw(kinds)(name, dataset_names)) for name in server_names]
    optional = {
        "domino": dominos,
        "guardrails": guardrails(),
        "mesh": meshes,
        "monitoring": monitorings,
        "pullSecrets": st.just([{"name": "registry"}]),
        "pods": sometimes(
            {
                "annotations": st.just({"example.com/team": "inference"}),
                "environment": st.just({"REGION": "eu"}),
                "imagePullPolicy": st.sampled_from(["Always", "IfNotPresent", "Never"]),
            }
        ),
    }
    tree: Tree = {
        "images": [
            {"name": name, "repository": f"registry.example.com/{name}", "tag": "1.0"}
            for name in ("triton", "engine", "proxy", "eviction-policy")
        ],
        "evictionPolicies": [{"name": "own"}],
        "datasets": [draw(datasets(name)) for name in dataset_names],
        "servers": platform_servers,
        "proxy": draw(proxies()),
        "models": draw(models(platform_servers)),
        "network": _reached_by_one(
            draw(networks()),
            draw(st.sampled_from([None, *server_names])),
            [server["name"] for server in platform_servers if "frontends" in server.get("openai", {})],
        ),
        **draw(sometimes(optional)),
    }
    if "domino" in tree and draw(st.booleans()):
        tree["proxy"] = {**tree["proxy"], "auth": {**tree["proxy"]["auth"], "dominoPrincipal": True}}
    environment_names = draw(st.lists(names(6).filter(is_alias), min_size=1, max_size=3, unique=True))
    tree["environments"] = [draw(environments(name, tree)) for name in environment_names]
    planes = draw(st.lists(names(6), min_size=1, max_size=3, unique=True))
    hosted = st.lists(st.sampled_from(environment_names), min_size=1, unique=True)
    of_plane = {"wave": st.integers(1, 3), "registries": st.just({"registry.example.com": "mirror.example"})}
    tree["dataPlanes"] = [
        {"name": plane, "environments": draw(hosted), **draw(sometimes(of_plane))} for plane in planes
    ]
    for environment in tree["environments"]:
        _expose_apart(environment, tree)
    for environment in tree["environments"] if tree["environments"][1:] else ():
        _read_apart(environment, tree)
    for number, environment in enumerate(tree["environments"]):
        if draw(st.booleans()):
            environment["promotion"] = draw(promotions(environment_names[:number]))
    _stock_gpus(tree)
    return tree


def _reached_by_one(network: Tree, server: str | None, with_frontends: list[str]) -> Tree:
    """Let one server reach something that no other does, where one is named, and those with frontends the API."""
    one: Tree = {"name": "one", "server": server, "cidr": "10.0.0.0/7", "ports": [443]}
    api = [{"name": f"api-{name}", "server": name, "cidr": "192.0.2.10/32", "ports": [6443]} for name in with_frontends]
    return {**network, "reach": [*network["reach"], *([one] if server else []), *api]}


def guardrails() -> st.SearchStrategy[Tree]:
    rule = st.sampled_from(sorted(BY_NAME))
    until = st.dates(min_value=date(2020, 1, 1)).map(date.isoformat)
    reason = st.just("It is “needed”: see {the} ticket's text.")
    waiver: st.SearchStrategy[Tree] = st.fixed_dictionaries(
        {"name": names(), "rule": rule, "owner": names(), "reason": reason, "until": until},
        optional={"object": names().map("StatefulSet/{}".format)},
    )
    optional: dict[str, st.SearchStrategy[Any]] = {
        "severities": st.dictionaries(rule, st.sampled_from(get_args(Severity)), max_size=3),
        "waivers": st.lists(waiver, max_size=2, unique_by=lambda each: str(each["name"])),
        "gpuSlices": st.integers(10**5, 10**6),
        "monthlyBudget": st.integers(10**8, 10**9),
    }
    return sometimes(optional)


@st.composite
def environments(draw: st.DrawFn, name: str, common: Tree) -> Tree:
    """An environment with a small overlay."""
    overlay: Tree = {}
    proxies: list[Tree] = [{"logLevel": "debug"}, {"bodyLimit": "1Gi"}, {"rateLimit": {"burst": 7}}]
    if draw(st.booleans()):
        overlay["proxy"] = draw(st.sampled_from(proxies))
    if draw(st.booleans()):
        server = draw(st.sampled_from(common["servers"]))
        pool = draw(st.sampled_from(server["pools"]))
        change: Tree = draw(st.sampled_from([{"autoscaling": None, "replicas": 2}, {"startupSeconds": 77}]))
        overlay["servers"] = [{"name": server["name"], "pools": [{"name": pool["name"], **change}]}]
    head = draw(sometimes({"production": st.booleans(), "labels": labels}))
    return {"name": name, "namespace": f"ns-{name}", **head, **overlay}


@st.composite
def promotions(draw: st.DrawFn, earlier: Sequence[str]) -> Tree:
    """A promotion: who may promote to an environment, from one of the earlier environments, if any."""
    optional: dict[str, st.SearchStrategy[Any]] = {
        "principals": st.just(["alice"]),
        "groups": st.just(["deployers", "admins"]),
        "separationOfDuties": st.booleans(),
    }
    promotion: Tree = draw(sometimes(optional))
    if draw(st.booleans()) and earlier:
        promotion |= {"from": draw(st.sampled_from(earlier)), **draw(sometimes({"soakHours": st.just(0.5)}))}
    return promotion


def _expose_apart(environment: Tree, common: Tree) -> None:
    """Give each environment a separate host, which two environments of one cluster need."""
    if "host" in common["proxy"]["exposure"]:
        exposure = {"host": f"{environment['name']}.example.com"}
        environment["proxy"] = {**environment.get("proxy", {}), "exposure": exposure}


def _read_apart(environment: Tree, common: Tree) -> None:
    """Give an environment separate model repositories."""
    servers = {server["name"]: server for server in environment.get("servers", [])}
    for server in common["servers"]:
        repository = server["repository"]
        own = {"path": f"{environment['name']}/{repository.get('path', 'models')}"}
        if "url" in repository:
            scheme, _, bucket, *rest = repository["url"].split("/")
            own = {"url": "/".join([scheme, "", bucket, environment["name"], *rest])}
        servers.setdefault(server["name"], {"name": server["name"]})["repository"] = own
    environment["servers"] = [*servers.values()]


def _stock_gpus(tree: Tree) -> None:
    """Give each data plane nodes for each placement, enough for everything."""
    pools = (pool for server in tree["servers"] for pool in server["pools"])
    placed = {json.dumps(pool["placement"]) for pool in pools if pool["placement"]["kind"] != "cpu"}
    for plane in tree["dataPlanes"]:
        plane["gpus"] = [_nodes_for(json.loads(placement)) for placement in sorted(placed)]


def _nodes_for(placement: Tree) -> Tree:
    kind, profile = placement["kind"], placement.get("profile")
    made_in = next((product for product, profiles in PRODUCTS.items() if profile in profiles), min(PRODUCTS))
    group: Tree = {"nodes": 500, "memory": "1Ti", "product": placement.get("product", made_in), "perNode": 4}
    group["price"] = {"perHour": 2.5, "source": "A test.", "asOf": "2026-11-01"}
    if kind in ("time-slicing", "mps"):
        return {**group, "sharing": {"kind": kind, "replicas": 4}}
    strategy = "dra" if kind == "dra" else placement.get("strategy", "mixed")
    return {**group, "mig": {"strategy": strategy, "slices": {profile: 1}}} if profile else group


def read_tree(tree: Tree, *, pinned: bool = False, file: str = "definition.yaml") -> Definition:
    """Return the definition of a tree. With `pinned`, every image has a digest."""
    images = sorted({f"{image['repository']}:{image['tag']}" for image in tree["images"]}) if pinned else []
    pins = (PinnedImage(image=image, digest=f"sha256:{number:064x}") for number, image in enumerate(images))
    return validate(parse(json.dumps(tree, indent=1), file), ImagesLock(images=tuple(pins)))  # JSON is YAML
