"""Makes definitions of any size: valid, and made of what real ones are made of."""

POOLS = 10
ENVIRONMENTS = 2

_PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb")
_PRODUCT = "NVIDIA-A100-SXM4-80GB"

_COMMON = """\
images:
  - {name: triton, repository: nvcr.io/nvidia/tritonserver, tag: 26.08-py3}
  - {name: proxy, repository: registry.example.com/tidegate/inference-proxy, tag: 0.2.0}
  - {name: eviction-policy, repository: registry.example.com/tidegate/eviction-policy, tag: 0.2.0}
pullSecrets:
  - name: registry-credentials
datasets:
  - name: models
    kind: efs
    fileSystemId: fs-0a1b2c3d4e5f60001
    capacity: 500Gi
    writers: [data-scientists]
proxy:
  replicas: 2
  auth:
    oidc:
      - issuer: https://idp.example.com/realms/platform
        audiences: [inference-proxy]
  access:
    - {name: model-endpoints, groups: [model-endpoints], actions: [infer, inspect], servers: [preload, on-demand]}
network:
  callers:
    - name: model-endpoints
      namespaceLabels: {kubernetes.io/metadata.name: model-endpoints}
  reach:
    - {name: identity-provider, by: [proxy], cidr: 10.0.0.0/8, ports: [443]}
monitoring:
  operator: true
guardrails:
  severities: {images-are-pinned-by-digest: advisory}
"""
_ENVIRONMENTS = """\
environments:
  - name: dev
    proxy: {replicas: 1}
  - name: prod
    production: true
    datasets:
      - {name: models, fileSystemId: fs-0a1b2c3d4e5f60002, writers: [production-deployers]}
    proxy:
      replicas: null
      autoscaling: {min: 3, max: 12}
"""


def definition_text(planes: int) -> str:
    """Return the YAML of a definition with this many data planes, in each of which both environments live.

    Every environment has ten pools, on two servers, and two models a pool. Every data plane lays values of its own over
    the environments', so that no stack is like another.
    """
    pools = [(number, "preload" if number % 2 else "on-demand") for number in range(POOLS)]
    parts = [_COMMON, "servers:\n"]
    for mode in ("preload", "on-demand"):
        parts.append(f"  - name: {mode}\n    repository: {{dataset: models, path: models/{mode}}}\n    pools:\n")
        parts += [_pool(number, mode) for number, of in pools if of == mode]
    parts.append("models:\n")
    parts += [_model(number, mode, which) for number, mode in pools for which in ("a", "b")]
    parts += [_ENVIRONMENTS, "dataPlanes:\n"]
    parts += [_plane(number) for number in range(planes)]
    return "".join(parts)


def _pool(number: int, mode: str) -> str:
    profile = _PROFILES[number % len(_PROFILES)]
    return f"""\
      - name: pool-{number}
        loading: {{mode: {mode}}}
        placement: {{kind: mig, profile: {profile}, product: {_PRODUCT}}}
        replicas: {1 + number % 2}
        resources: {{cpu: "2", memory: 16Gi}}
"""


def _model(number: int, mode: str, which: str) -> str:
    return f"""\
  - name: model-{number}-{which}
    server: {mode}
    pool: pool-{number}
    versions:
      - {{version: 1, weight: 80}}
      - {{version: 2, weight: 20}}
    footprint: 2Gi
"""


def _plane(number: int) -> str:
    return f"""\
  - name: plane-{number}
    context: cluster-{number}
    environments: [dev, prod]
    wave: {1 + number % 5}
    registries: {{nvcr.io: mirror-{number}.example.com/nvcr}}
    gpus:
      - nodes: 20
        product: {_PRODUCT}
        perNode: 1
        mig: {{slices: {{3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2}}}}
    servers:
      - name: on-demand
        pools:
          - {{name: pool-0, replicas: 2}}
    monitoring:
      labels: {{plane: plane-{number}}}
"""
