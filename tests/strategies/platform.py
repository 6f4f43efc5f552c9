import re
from typing import Any

from hypothesis import strategies as st

Tree = dict[str, Any]

PRODUCTS = {
    "NVIDIA-A100-SXM4-80GB": ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"],
    "NVIDIA-H200": ["1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"],
}
GROUPS = ["data-scientists", "model-endpoints", "team-a"]


def names(longest: int = 12) -> st.SearchStrategy[str]:
    return st.from_regex(re.compile(rf"[a-z]([-a-z0-9]{{0,{longest - 2}}}[a-z0-9])?", re.ASCII), fullmatch=True)


def sometimes(tree: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Tree]:
    """A mapping of which each key may be missing, so that its default holds."""
    return st.fixed_dictionaries({}, optional=tree)


labels = st.dictionaries(names(), names(), max_size=2)
gigabytes = st.integers(1, 64).map("{}Gi".format)


def resources(least_memory: int = 1) -> st.SearchStrategy[Tree]:
    """CPU and memory, at least so many GiB of it."""

    def made(cpu: int, more: int, memory: int) -> Tree:
        limit = {"cpuLimit": f"{cpu + more}m"} if more else {}
        return {"cpu": f"{cpu}m", "memory": f"{memory}Gi", **limit}

    return st.builds(made, st.integers(50, 8000), st.integers(0, 2000), st.integers(least_memory, 256))


def datasets(name: str) -> st.SearchStrategy[Tree]:
    """A dataset of any kind except hostPath, on a separate volume."""
    volume = sometimes(
        {
            "capacity": gigabytes,
            "mountOptions": st.lists(st.sampled_from(["tls", "nconnect=8", "ro"]), unique=True),
            "accessMode": st.just("ReadWriteMany"),
            "storageClass": names(),
            "domino": st.just({"datasetId": "65f1c0ffee0000000000d001"}),
        }
    )
    identity = st.integers(0, 16**8 - 1).map("{:08x}".format)
    bucket = {"kind": "csi", "driver": "s3.csi.aws.com", "nodePublishSecret": "mount-credentials"}
    kinds: list[st.SearchStrategy[Tree]] = [
        identity.map(lambda i: {"kind": "efs", "fileSystemId": f"fs-{i}"}),
        identity.map(lambda i: {"kind": "efs", "fileSystemId": f"fs-{i}", "accessPointId": f"fsap-{i}"}),
        identity.map(lambda i: {"kind": "nfs", "server": "10.0.0.5", "path": f"/export/{i}"}),
        identity.map(lambda i: {**bucket, "volumeHandle": i, "volumeAttributes": {"bucketName": i}}),
    ]
    claim = names().map(lambda claim: {"name": name, "kind": "claim", "claimName": f"given-{claim}"})
    made = st.builds(lambda kind, rest: {"name": name, **kind, **rest}, st.one_of(kinds), volume)
    return st.one_of(made, made, claim)


@st.composite
def placements(draw: st.DrawFn) -> Tree:
    product = draw(st.sampled_from(sorted(PRODUCTS)))
    profile = draw(st.sampled_from(PRODUCTS[product]))
    named = {"product": product} if draw(st.booleans()) else {}
    kinds: list[Tree] = [
        {"kind": "cpu"},
        {"kind": "gpu", "count": draw(st.integers(1, 4)), "product": product},
        {"kind": "mig", "profile": profile, **named},
        {"kind": "mig", "profile": profile, "product": product, "strategy": "single"},
        {"kind": "time-slicing", **named},
        {"kind": "mps", "renamed": False, **named},
        {"kind": "dra", "deviceClass": "mig.nvidia.com", "profile": profile},
        {"kind": "dra", "deviceClass": "gpu.nvidia.com", **named},
    ]
    return draw(st.sampled_from(kinds))


def loadings() -> st.SearchStrategy[Tree]:
    """A loading of either mode, with a capacity, because not every placement determines one."""
    preload = st.fixed_dictionaries({"mode": st.just("preload")}, optional={"pollSeconds": st.integers(1, 600)})
    on_demand = st.fixed_dictionaries(
        {"mode": st.just("on-demand"), "capacity": st.just("1Gi"), "leaseSeconds": st.integers(2, 30)},
        optional={
            "policy": st.sampled_from(["break-even", "lru-idle", "cost-aware", "own"]),
            "idleSeconds": st.integers(30, 3600),
            "waitSeconds": st.integers(0, 60),
            "staging": staging(),
        },
    )
    return st.one_of(preload, on_demand)


def staging() -> st.SearchStrategy[Tree]:
    """A staging tier of any kind, into which every model fits."""
    kinds = st.sampled_from([{"kind": "memory"}, {"kind": "disk"}, {"kind": "volume", "storageClass": "nvme"}])
    sizes = st.integers(200, 4000).map(lambda size: {"size": f"{size}Mi"})
    return st.builds(lambda kind, size: {**kind, **size}, kinds, sizes)


def counts(scaled_by_queue: bool) -> st.SearchStrategy[Tree]:
    """A number of replicas, bounds of an autoscaler, or neither."""
    bounds = st.builds(lambda low, more: {"min": low, "max": low + more}, st.integers(1, 3), st.integers(0, 3))
    ways: list[st.SearchStrategy[Tree]] = [
        st.just({}),
        st.integers(1, 4).map(lambda n: {"replicas": n}),
        bounds.map(lambda b: {"autoscaling": {**b, "cpuPercent": 60} if not scaled_by_queue else {**b, "kind": "cpu"}}),
    ]
    if scaled_by_queue:
        queue = {"kind": "queue", "queueMilliseconds": 20, "prometheusAddress": "http://prometheus.monitoring:9090"}
        more = sometimes({"busyPercent": st.just(10), "stepSeconds": st.just(90), "downSeconds": st.just(0)})
        ways.append(st.builds(lambda b, m: {"autoscaling": {**b, **queue, **m}}, bounds, more))
    return st.one_of(ways)


TOLERATIONS = [
    [{"key": "dedicated", "value": "inference", "effect": "NoSchedule"}],
    [{"key": "dedicated", "operator": "Equal", "value": "inference"}, {"key": "spot", "operator": "Exists"}],
]


def pools(name: str) -> st.SearchStrategy[Tree]:
    always = {"loading": loadings(), "placement": placements(), "resources": resources(least_memory=4)}
    optional = {
        "sharedMemory": st.just("512Mi"),
        "scratch": gigabytes,
        "nodeSelector": labels,
        "tolerations": st.sampled_from(TOLERATIONS),
        "priorityClass": names(),
        "startupSeconds": st.integers(30, 3600),
        "maxUnavailable": st.integers(1, 2),
        "policyResources": resources(),
    }
    rest = st.fixed_dictionaries(always, optional=optional)
    return st.builds(lambda count, rest: {"name": name, **count, **_ran(rest)}, counts(scaled_by_queue=True), rest)


def _ran(pool: Tree) -> Tree:
    return {key: item for key, item in pool.items() if key != "policyResources" or pool["loading"]["mode"] != "preload"}


@st.composite
def servers(draw: st.DrawFn, name: str, dataset_names: list[str]) -> Tree:
    """A server whose repository lies in a dataset or in object storage."""
    buckets: list[Tree] = [
        {"repository": {"url": url}, "identity": identity}
        for url, identity in (
            ("s3://bucket/models", {"cloud": "aws", "roleArn": "arn:aws:iam::123456789012:role/models"}),
            ("gs://bucket/models", {"cloud": "gcp", "serviceAccount": "models@project.iam.gserviceaccount.com"}),
            ("as://account/models", {"cloud": "azure", "clientId": "00000000-0000-0000-0000-00000000000a"}),
        )
    ]
    in_datasets: list[Tree] = [
        {"repository": {"dataset": dataset, **path}}
        for dataset in dataset_names
        for path in ({}, {"path": "models/pre-load"})
    ]
    settings = sometimes(
        {
            "exitTimeoutSeconds": st.integers(1, 600),
            "grpcTls": names().map(lambda secret: {"secret": secret}),
            "extraArguments": st.just(["--pinned-memory-pool-byte-size=268435456"]),
            "environment": st.just({"OMP_NUM_THREADS": "4"}),
            "secretEnvironment": st.just([{"name": "AWS_SECRET_ACCESS_KEY", "secret": "minio", "key": "secret"}]),
        }
    )
    pool_names = draw(st.lists(names(8), min_size=1, max_size=3, unique=True))
    server_pools = [draw(pools(pool)) for pool in pool_names]
    triton = draw(settings)
    repository = draw(st.sampled_from(in_datasets + buckets))
    return {"name": name, **repository, "triton": triton, "pools": server_pools}


_OF_TRITON = ("queueMilliseconds", "busyPercent")
ENGINES: list[Tree] = [
    {"engine": "dynamo", "worker": "sglang", "frontendResources": {"cpu": "500m"}},
    {"engine": "dynamo", "worker": "mocker"},
    {"engine": "dynamo", "frontends": {}},
    {"engine": "dynamo", "worker": "trtllm", "frontends": {"replicas": 3, "extraArguments": ["--router-mode=kv"]}},
    {"engine": "vllm", "extraArguments": ["--enforce-eager"]},
    {"engine": "sglang", "source": "org/a model"},
    {"engine": "nim", "ownModel": True, "extraArguments": ["--enforce-eager"]},
    {
        "engine": "custom",
        "command": ["serve"],
        "arguments": ["--name", "$(SERVED_NAME)"],
        "metricsPath": "/m",
        "waitingMetric": "tgi_queue_size",
    },
    {"engine": "custom", "command": ["serve", "$(MODEL)"], "livePath": "/live", "readyPath": "/ready"},
]


@st.composite
def engines(draw: st.DrawFn, name: str, dataset_names: list[str]) -> Tree:
    """A server of OpenAI's API, of any engine, with the given number of devices a replica."""
    settings = sometimes(
        {
            "contextLength": st.integers(1, 2**20),
            "environment": st.just({"OMP_NUM_THREADS": "4"}),
            "exitTimeoutSeconds": st.integers(1, 600),
            "secretEnvironment": st.just([{"name": "HF_TOKEN", "secret": "hub", "key": "token"}]),
        }
    )
    size, engine = draw(st.integers(1, 2)), draw(st.sampled_from(ENGINES))
    server_pools = []
    for pool in draw(st.lists(names(8), min_size=1, max_size=1 if "source" in engine else 2, unique=True)):
        made = draw(pools(pool))
        placement = {"kind": "gpu", "count": size, "product": min(PRODUCTS)}
        may_lack_a_gpu = {engine["engine"], engine.get("worker")}.isdisjoint(("nim", "trtllm"))
        if size == 1 and ((drawn := draw(placements()))["kind"] != "cpu" or may_lack_a_gpu):
            placement = drawn | ({"count": 1} if drawn["kind"] == "gpu" else {})
        made |= {"loading": {"mode": "preload"}, "placement": placement}
        if made.get("autoscaling", {}).get("kind") == "queue":
            scaling = {key: item for key, item in made["autoscaling"].items() if key not in _OF_TRITON}
            reports = engine.get("worker") != "trtllm" and (engine["engine"] != "custom" or "metricsPath" in engine)
            bounds = {"min": scaling["min"], "max": scaling["max"], "kind": "cpu"}
            made["autoscaling"] = {**scaling, "waitingRequests": 3} if reports else bounds
        server_pools.append(_ran(made))
    repository = {"dataset": draw(st.sampled_from(dataset_names)), "path": "language"}
    openai = {**engine, "tensorParallelSize": size, **draw(settings)}
    server = {"name": name, "kind": "openai", "image": "engine", "openai": openai, "pools": server_pools}
    return {**server, "repository": repository}


@st.composite
def models(draw: st.DrawFn, platform_servers: list[Tree]) -> list[Tree]:
    """Models on the pools of these servers. Pools of engines have one model or version, and all footprints fit."""
    optional = {"idleSeconds": st.integers(30, 3600), "pinned": st.booleans(), "footprint": st.just("100Mi")}
    found: list[Tree] = []
    tritons = [server for server in platform_servers if "triton" in server]
    engine_servers = [server for server in platform_servers if "openai" in server]
    both = [server for server in engine_servers if len(server["pools"]) == 2 and draw(st.booleans())]
    places = [(server, pool) for server in engine_servers if server not in both for pool in server["pools"]]
    least = len(places) + len(both)
    named = draw(st.lists(names(), min_size=least, max_size=least + 5, unique=True))
    has_names = draw(st.booleans())
    for server in both:
        weight = draw(st.integers(0, 100))
        one, other = (pool["name"] for pool in server["pools"])
        shares = [{"version": 3, "weight": 100 - weight, "pool": one}, {"version": 4, "weight": weight, "pool": other}]
        name = named.pop()
        also = {"servedNames": [f"Gpt.{name}", f"meta/{name}-3.1_8b", f"{name}:8b"]} if has_names else {}
        found.append({"name": name, "server": server["name"], "versions": shares, **also})
    for name, (server, pool) in zip(named, places, strict=False):
        alone = draw(st.sampled_from([{}, {"versions": [{"version": 3, "weight": 100}]}]))
        found.append({"name": name, "server": server["name"], "pool": pool["name"], **alone})
    for name in named[len(places) :] if tritons else ():
        server = draw(st.sampled_from(tritons))
        pool = draw(st.sampled_from(server["pools"]))
        weight = draw(st.integers(0, 100))
        split: Tree = {"versions": [{"version": 3, "weight": 100 - weight}, {"version": 4, "weight": weight}]}
        traffic = draw(st.sampled_from([{}, {"alias": "champion"}, split]))
        place = {"name": name, "server": server["name"], "pool": pool["name"]}
        found.append({**place, **traffic, **draw(sometimes(optional))})
    return found


def proxies() -> st.SearchStrategy[Tree]:
    """A proxy, exposed and authenticating in any way."""
    exposures: list[Tree] = [
        {"exposure": {"kind": "cluster-ip"}},
        {"exposure": {"kind": "ingress", "host": "i.example.com", "path": "/inference", "className": "nginx"}},
        {"exposure": {"kind": "http-route", "host": "i.example.com", "gateway": "g", "gatewayNamespace": "gateways"}},
        {
            "exposure": {
                "kind": "http-route",
                "host": "i.example.com",
                "path": "/a/b.c",
                "gateway": "g",
                "gatewayNamespace": "gateways",
                "listener": "https",
            }
        },
        {"exposure": {"kind": "load-balancer", "sourceRanges": ["10.0.0.0/8"]}},
        {"exposure": {"kind": "load-balancer"}},
        {"exposure": {"kind": "load-balancer"}, "tls": {"kind": "secret", "secret": "certificate"}},
        {"exposure": {"kind": "ingress", "host": "i.example.com"}, "tls": {"kind": "secret", "secret": "certificate"}},
        {"exposure": {"kind": "cluster-ip"}, "tls": {"kind": "cert-manager", "issuer": "internal-ca"}},
    ]
    optional = {
        "resources": resources(),
        "tracing": st.integers(0, 100).map(lambda percent: {"endpoint": "http://x:4318", "percent": percent}),
        "metrics": st.integers(0, 9).map(lambda number: {"models": number}),
        "timeouts": st.integers(1, 600).map(lambda seconds: {"drainSeconds": seconds}),
        "bodyLimit": gigabytes,
        "logLevel": st.sampled_from(["debug", "info", "warning", "error"]),
        "nodeSelector": labels,
    }
    realm = {"issuer": "https://idp.example.com/realms/x", "audiences": ["inference-proxy"]}
    auths: list[Tree] = [
        {},
        {"apiKeys": {"secret": "api-keys"}},
        {"oidc": [realm]},
        {"oidc": [realm], "authorities": [{"name": "a", "configMap": "bundle"}, {"name": "b", "secret": "bundle"}]},
        {"oidc": [realm | {"issuer": "http://idp.example.com:8080/realms/x"}]},
        {"oidc": [realm | {"jwksUrl": "http://keycloak.identity.svc/certs"}], "apiKeys": {"secret": "api-keys"}},
    ]
    globs = st.sampled_from(["*", "fraud-*"]).map(lambda glob: [glob])
    groups = st.sampled_from(GROUPS).map(lambda group: [group])
    rule = st.fixed_dictionaries({"name": names(), "groups": groups, "models": globs, "actions": st.just(["infer"])})

    def made(exposure: Tree, auth: Tree, access: list[Tree], number: Tree, rest: Tree) -> Tree:
        # Only issuers' tokens contain groups.
        rules = access if "oidc" in auth else [{**each, "principals": each["groups"]} for each in access]
        return {**exposure, "auth": auth, "access": rules, **number, **rest}

    return st.builds(
        made,
        st.sampled_from(exposures),
        st.sampled_from(auths),
        st.lists(rule, max_size=3, unique_by=lambda item: str(item["name"])),
        counts(scaled_by_queue=False),
        sometimes(optional),
    )


def networks() -> st.SearchStrategy[Tree]:
    """A network with egress rules for any issuer."""
    callers: list[Tree] = [
        {"name": "ingress", "namespaceLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}},
        {"name": "office", "cidr": "192.0.2.0/24"},
        {"name": "everybody", "cidr": "0.0.0.0/0"},
        {"name": "half", "cidr": "::/1"},
    ]
    further: list[Tree] = [
        {"name": "buckets", "by": ["servers"], "cidr": "0.0.0.0/0", "ports": [443], "except": ["198.51.100.0/24"]},
        {"name": "anything", "by": ["servers"], "cidr": "0.0.0.0/0"},
        {"name": "six", "by": ["proxy"], "cidr": "::/0", "ports": [443]},
    ]
    return st.builds(
        lambda who, ports, more: {
            "callers": who,
            "reach": [
                {"name": "identity-provider", "by": ["proxy"], "cidr": "198.51.100.0/24", "ports": ports},
                {"name": "storage", "by": ["servers", "proxy"], "namespaceLabels": {"team": "storage"}},
                *more,
            ],
        },
        st.lists(st.sampled_from(callers), max_size=2, unique_by=lambda item: str(item["name"])),
        st.sampled_from([[], [443], [443, 8443]]),
        st.lists(st.sampled_from(further), max_size=2, unique_by=lambda item: str(item["name"])),
    )


dominos = st.sampled_from(
    [{}, {"computeNamespace": "compute"}, {"principalUrl": "https://198.51.100.7/principal"}]
    + [{"principalUrl": f"{scheme}://identity.domino-edge.svc/principal"} for scheme in ("http", "https")]
)
meshes = st.sampled_from([{"mode": "istio"}, {"mode": "istio", "mtls": "STRICT", "namespace": "mesh"}])
monitorings = st.sampled_from(
    [
        {},
        {"operator": True, "runbooks": "https://docs.example.com/runbooks.html"},
        {"operator": True, "rules": False, "labels": {"release": "x"}},
    ]
)
