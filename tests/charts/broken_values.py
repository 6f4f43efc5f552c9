"""Values of the chart that break each rule of the definition, and rules that no values can break."""

import copy
import re
from dataclasses import dataclass
from typing import Any

import yaml

Values = dict[str, Any]
GONE = object()  # Stands for a key that is taken away.
BASE: Values = yaml.safe_load("""
name: prod
namespace: {name: inference-prod}
datasets:
  - {name: models, source: {kind: nfs, server: nfs.example.com, path: /models}}
claims: [{name: given}]
evictionPolicyImage: registry.example.com/policy:1
servers:
  - name: main
    image: registry.example.com/triton:1
    repository: {kind: volume, claim: models, subPath: prod}
    pools:
      - name: warm
        loading: {mode: preload}
        placement: {kind: mig, profile: 2g.20gb, product: NVIDIA-A100-SXM4-80GB}
        models: [{name: churn, footprintBytes: 2147483648}]
      - name: cold
        loading:
          mode: on-demand
          warmWindows: [{name: nightly, opens: 0 1 * * *, durationSeconds: 3600, models: [ocr]}]
        placement: {kind: mig, profile: 1g.10gb, product: NVIDIA-A100-SXM4-80GB}
        models: [{name: ocr}, {name: fraud, versions: [{version: 1, weight: 100}]}]
  - name: bucket
    image: registry.example.com/triton:1
    repository: {kind: object-store, url: s3://models/prod}
    identity: {cloud: aws, roleArn: "arn:aws:iam::123456789012:role/models"}
    pools: [{name: only, loading: {mode: preload}}]
proxy:
  image: registry.example.com/proxy:1
  exposure: {kind: ingress, host: inference.example.com}
  auth: {oidc: [{issuer: https://idp.example.com, audiences: [inference]}]}
  access: [{name: all, groups: [callers]}]
network:
  callers: [{name: ingress, namespaceLabels: {kubernetes.io/metadata.name: ingress-nginx}}]
  reach:
    - {name: identity, by: [proxy], cidr: 10.0.0.0/8}
    - {name: store, by: [servers], cidr: 10.1.0.0/16}
""")


@dataclass(frozen=True)
class Refused:
    """An edit of the values that a rule refuses: who refuses it, at which key, and what is said."""

    by: str  # `schema`, or `check-chart` where a schema cannot say it.
    edits: Values  # What is to stand at which keys.
    said: str
    at: str


def edited(edits: Values, of: Values = BASE) -> Values:
    """Values in which something else stands at some keys, such as `servers[main].pools[cold].placement`.

    A function makes it of what stands there.
    """
    values = copy.deepcopy(of)
    for path, value in edits.items():
        *steps, last = re.findall(r"[^.\[\]]+", path)
        place: Any = values
        for step in steps:
            place = next(item for item in place if item["name"] == step) if isinstance(place, list) else place[step]
        place[last] = value(place[last]) if callable(value) else value
        if value is GONE:
            del place[last]
    return values


def schema(edits: Values, said: str, at: str | None = None) -> Refused:
    """What the schema refuses, at the last of the edited keys unless another is named."""
    return Refused("schema", edits, said, [*edits][-1] if at is None else at)


def check(edits: Values, said: str, at: str | None = None) -> Refused:
    """What only `make check-chart` refuses."""
    return Refused("check-chart", edits, said, [*edits][-1] if at is None else at)


POOL, BUCKET = "servers[main].pools[cold]", "servers[bucket]"
PLACEMENT, LOADING, OCR, FRAUD = f"{POOL}.placement", f"{POOL}.loading", f"{POOL}.models[ocr]", f"{POOL}.models[fraud]"
NIGHTLY = f"{LOADING}.warmWindows[nightly]"
TRITON, CHURN = "servers[main].triton", "servers[main].pools[warm].models[churn]"
AUTH, ACCESS, EXPOSURE = "proxy.auth", "proxy.access", "proxy.exposure"
CALLER, REACH = "network.callers[ingress]", "network.reach"
SNIPPET = {"nginx.ingress.kubernetes.io/server-snippet": "return 200;"}
PROXY_ONLY = [{"name": "identity", "by": ["proxy"], "cidr": "10.0.0.0/8"}]
SERVERS_ONLY = [{"name": "store", "by": ["servers"], "cidr": "10.0.0.0/8"}]
ROUTE = {"kind": "http-route", "host": "a.example.com", "gateway": "public", "gatewayNamespace": "gateways"}
INGRESS = {"kind": "ingress", "host": "a.example.com"}
ISSUER = {"issuer": "https://idp.example.com", "audiences": ["inference"]}
OTHER_ISSUER = {**ISSUER, "issuer": "https://other.example.com"}
AZURE = {"cloud": "azure", "clientId": "0f6b8a3e-0000-4000-8000-000000000001"}
LATEST = "registry.example.com/proxy:latest"
A100, L40S = "NVIDIA-A100-SXM4-80GB", "NVIDIA-L40S-SHARED"


def rule(**keys: Any) -> Values:
    """The only rule of access."""
    return {ACCESS: [{"name": "all", "groups": ["g"], **keys}]}


REFUSED: dict[str, Refused] = {
    # Rules over several items.
    "a_gateway_is_given_no_certificate_of_the_proxy":
        check({EXPOSURE: ROUTE, "proxy.tls": {"secret": "tls"}}, "cannot stand together"),
    "a_namespace_belongs_to_its_environment":
        check({"domino": {}, "namespace.name": "domino-compute"}, "would take over domino-compute", ""),
    "access_rules_name_servers_and_models_that_exist":
        check(rule(models=["nobody"]), "names models that are not there", f"{ACCESS}[all].models[0]"),
    "access_rules_name_sources_that_are_believed":
        check(rule(source="api-keys"), "whom proxy.auth does not believe", f"{ACCESS}[all].source"),
    "access_rules_say_who_vouches_where_several_do": check({AUTH: {"oidc": [ISSUER, OTHER_ISSUER]}, **rule()},
        "does not say who vouches for its groups", f"{ACCESS}[all].groups"),
    "claims_that_exist_are_none_of_ours":
        check({"claims": [{"name": "models"}]}, "which is made for", "claims[models].name"),
    "cloud_identity_fits_the_object_store":
        check({f"{BUCKET}.repository.url": "gs://models/prod"}, "with an identity of aws", f"{BUCKET}.identity.cloud"),
    "domino_principals_need_the_domino_integration":
        check({AUTH: {"dominoPrincipal": True}}, "no domino section", f"{AUTH}.dominoPrincipal"),
    "host_paths_are_for_local_environments": check({"datasets[models].source": {"kind": "hostPath", "path": "/models"}},
        "is not local", "datasets[models].source.kind"),
    "images_that_are_used_are_named": check({"evictionPolicyImage": None}, "eviction-policy"),
    "mig_profiles_exist_on_their_product": check({PLACEMENT: {"kind": "mig", "profile": "1g.5gb", "product": A100}},
        "has no MIG profile 1g.5gb", f"{PLACEMENT}.profile"),
    "models_stay_idle_longer_than_a_lease": check({f"{OCR}.idleSeconds": 3}, "less than leaseSeconds 15"),
    "no_issuer_stands_twice": check({AUTH: {"oidc": [ISSUER, ISSUER]}}, "twice", f"{AUTH}.oidc[1].issuer"),
    "no_two_pools_become_one_object": check(
        {f"{BUCKET}.pools[only].name": "x", f"{POOL}.name": "cold-x", f"{BUCKET}.name": "main-cold"},
        "would share the Kubernetes name main-cold-x", "servers[main-cold].pools[x].name"),
    "node_selectors_leave_the_placement_alone": check({f"{POOL}.nodeSelector": {"nvidia.com/gpu.product": "x"}},
        "which follows from its placement"),
    "nobody_is_granted_everything_in_production":
        check(rule(groups=["*"]), "lets everybody call every model", f"{ACCESS}[all]"),
    "on_demand_models_fit_their_capacity":
        check({f"{FRAUD}.footprintBytes": 9_000_000_001}, "it could never be loaded"),
    "only_on_demand_models_are_pinned_or_idle": check({f"{CHURN}.pinned": True}, "means nothing"),
    "pool_names_leave_room_for_what_kubernetes_appends":
        check({f"{POOL}.name": "p" * 48}, "may have 52", f"pools[{'p' * 48}].name"),
    "preloaded_models_fit_their_slice":
        check({f"{CHURN}.footprintBytes": 20_000_000_001}, "sum to 20.0 GB", "pools[warm].placement"),
    "repositories_name_datasets_that_exist":
        check({"servers[main].repository.claim": "nobodys"}, 'reads an unknown dataset, "nobodys"'),
    "secrets_are_never_written_inline": check({TRITON: {"environment": {"AWS_SECRET_ACCESS_KEY": "x"}}},
        "looks like a secret", "AWS_SECRET_ACCESS_KEY"),
    "servers_can_reach_their_object_store":
        check({REACH: PROXY_ONLY}, "may reach nothing outside", f"{BUCKET}.repository.url"),
    "somebody_can_authenticate": check({f"{AUTH}.oidc": []}, "no way to know its callers", AUTH),
    "somebody_may_call_the_proxy": check({"network.callers": []}, "may not call the proxy", f"{EXPOSURE}.kind"),
    "the_proxy_can_reach_its_identity_provider":
        check({REACH: SERVERS_ONLY}, "cannot fetch the keys", f"{AUTH}.oidc[0].issuer"),
    "warm_windows_name_models_of_their_pool":
        check({f"{NIGHTLY}.models": ["churn"]}, "a model that this pool does not serve"),
    # What one item may not say.
    "AccessRule.somebody_is_named": schema({ACCESS: [{"name": "all"}]}, "neither principals nor", f"{ACCESS}[all]"),
    "DraPlacement.slices_have_a_profile": schema({PLACEMENT: {"kind": "dra"}}, "say which profile"),
    "DraPlacement.whole_gpus_have_no_profile": schema(
        {PLACEMENT: {"kind": "dra", "deviceClass": "gpu.nvidia.com", "profile": "1g.10gb"}}, "take profile away"),
    "Environment._annotations_leave_ours_alone": check({"namespace.annotations": {"tidegate.dev/more": "x"}},
        "annotations may not set tidegate.dev/more", ""),
    "MigPlacement.a_strategy_of_single_names_a_product": schema(
        {PLACEMENT: {"kind": "mig", "profile": "1g.10gb", "strategy": "single"}}, "strategy single needs a product"),
    "Model._a_candidate_has_no_traffic":
        check({f"{FRAUD}.mirror": {"version": 1, "percent": 5}}, "version 1 has traffic", FRAUD),
    "Model._traffic_is_whole":
        check({f"{FRAUD}.versions": [{"version": 1, "weight": 60}]}, "must sum to 100, and 60 is 60", FRAUD),
    "Model.a_mirror_has_versions_beside_it":
        schema({f"{OCR}.mirror": {"version": 2, "percent": 5}}, "mirror stands beside versions", OCR),
    "Model.traffic_is_said_once": schema({f"{FRAUD}.alias": "champion"}, "cannot stand together", FRAUD),
    "OidcIssuer.an_audience_is_named":
        schema({AUTH: {"oidc": [{**ISSUER, "audiences": []}]}}, "the issuer has no audiences", f"{AUTH}.oidc[0]"),
    "OnDemand._idle_is_at_least_the_lease": check({f"{LOADING}.idleSeconds": 5}, "idleSeconds 5", LOADING),
    "Pool._shared_memory_is_part_of_the_memory":
        check({f"{POOL}.sharedMemory": "8Gi"}, "counts against the memory limit", POOL),
    "ReplicaBounds._bounds_are_in_order":
        check({"proxy.autoscaling": {"min": 3, "max": 2}}, "min 3 is more than max 2"),
    "Resources._limit_is_at_least_the_request":
        check({"proxy.resources": {"cpu": "2", "cpuLimit": "1"}}, "cpuLimit 1 is less than cpu 2"),
    "Resources._memory_is_enough_for_a_process":
        check({"proxy.resources": {"memory": "2Mi"}}, "less than any process needs"),
    "TritonServer._environment_leaves_the_identity_alone": check(
        {f"{BUCKET}.identity": AZURE, f"{BUCKET}.repository.url": "as://account/models",
         f"{BUCKET}.triton": {"environment": {"AZURE_STORAGE_AUTH_TYPE": "key"}}},
        "beside an identity of Azure", BUCKET),
    "TritonServer._strict_readiness_is_for_preloaded_models":
        check({TRITON: {"strictReadiness": True}}, "strictReadiness and an on-demand pool", "servers[main]"),
    "TritonSettings._extra_arguments_leave_ours_alone":
        check({TRITON: {"arguments": ["--model-contr=none"]}}, "Tidegate sets it itself"),
    "WarmWindow._opens_is_a_cron_expression":
        check({f"{NIGHTLY}.opens": "0 25 * * *"}, "no cron expression", "warmWindows"),
    "WarmWindow._time_zone_is_known": check({f"{NIGHTLY}.timeZone": "Mars/Base"}, "no IANA time zone", "warmWindows"),
    "_Peer.addresses_stand_alone": schema({f"{CALLER}.cidr": "10.0.0.0/8"}, "cidr stands alone", CALLER),
    "_Peer.somebody_is_meant": schema({f"{CALLER}.namespaceLabels": {}}, "say who", CALLER),
    # Of texts, what their pattern cannot say.
    "is a label that Tidegate or Kubernetes sets itself":
        schema({"namespace.labels": {"app.kubernetes.io/name": "x"}}, "Tidegate or Kubernetes sets itself"),
    "belongs to Kubernetes; an environment owns its namespace":
        schema({"namespace.name": "kube-system"}, "belongs to Kubernetes"),
    "is a tag that moves with every push: name a version": check({"proxy.image": LATEST}, "moves with every push"),
    "leads requests past the proxy, or lets whoever may write it run what they like in the ingress controller": schema(
        {EXPOSURE: {**INGRESS, "annotations": SNIPPET}}, "leads requests past the proxy", f"{EXPOSURE}.annotations"),
    "is an alias that MLflow keeps for itself; name another, such as champion":
        schema({f"{OCR}.alias": "Latest"}, "MLflow keeps for itself"),
    "is a variable that Tidegate sets itself: the root file system is read-only":
        schema({TRITON: {"environment": {"HOME": "/"}}}, "Tidegate sets itself", "environment.HOME"),
    "carries an ending that the device plugin adds; leave -MIG-… and -SHARED out": schema(
        {PLACEMENT: {"kind": "gpu", "product": L40S}}, "an ending that the device plugin adds", f"{PLACEMENT}.product"),
    "is an address, and a host name is wanted":
        schema({EXPOSURE: {**INGRESS, "host": "10.0.0.1"}}, "a host name is wanted", f"{EXPOSURE}.host"),
    "must be a path below the volume's root, without . or .. and without a slash at its start":
        schema({"servers[main].repository.subPath": "../other"}, "without . or .."),
    "must be without . and ..":
        schema({"datasets[models].source.path": "/models/../secrets"}, "must be without . and .."),
    "_network": check({f"{REACH}[identity].cidr": "10.0.0.1/8"}, "has host bits set"),
    "_whole_bytes": check({f"{POOL}.scratch": "2"}, "is a unit missing"),
    "_whole_millicores":
        check({"proxy.resources": {"cpu": "0.0001"}}, "finer than a thousandth", "proxy.resources.cpu"),
}  # fmt: skip

NEVER: dict[str, list[str]] = {
    "values are of one environment, and the rule compares several": [
        "data_planes_name_environments_that_exist", "every_environment_lives_somewhere",
        "no_two_data_planes_share_a_cluster", "no_two_environments_of_a_cluster_share_a_namespace",
        "no_two_stacks_of_a_cluster_share_a_host_and_path", "no_two_stacks_of_a_cluster_share_a_volume",
        "no_two_stacks_share_a_name", "production_shares_nothing_that_others_may_write",
    ],
    "values do not say which GPUs a data plane has": [
        "gpus_of_a_replica_are_in_one_node", "products_that_are_asked_for_are_there", "slices_asked_for_are_there",
        "whole_gpus_are_told_from_slices", "GpuNodes._slices_fit_on_one_gpu", "GpuNodes.cut_or_shared",
    ],
    "it is about rollouts, of which values say nothing": [
        "canaries_are_planes_of_the_first_wave", "Alerts._a_service_or_an_address", "Gate._there_is_time_to_settle",
        "UrlProbe._tokens_travel_encrypted",
    ],
    "promotion is the client's, and values say nothing of it": [
        "groups_that_promote_are_told_by_an_issuer", "promotions_begin_somewhere",
        "promotions_come_from_other_environments", "those_who_promote_may_look_and_call",
        "versions_can_come_from_their_environment", "Promotion.hours_of_service_are_counted_somewhere",
        "is a glob, and promotion takes names as they are: name each, or a group that has them",
    ],
    "the guardrail images-are-pinned-by-digest says it of the rendered objects": ["images_have_a_digest"],
    "values spell out whole images, mirrors included": ["mirrors_are_of_registries_that_are_used"],
    "in values a model stands below the pool that serves it": ["models_name_servers_and_pools_that_exist"],
    "values have no lock: digests stand in the images": ["the_lock_holds_digests_of_these_images_only"],
    "the form of a namespace in values already bounds its length": ["Environment._namespace_is_its_own"],
    "an annotation tells one kind of environment of three": ["Environment._production_is_no_trial"],
    "in values the number has no effect where an autoscaler owns it":
        ["Pool._replicas_or_autoscaling", "Proxy._replicas_or_autoscaling"],
    "guardrails and their waivers stand in an annotation, which the guardrails read themselves": ["_day", "_known"],
}  # fmt: skip
"""Why no values can break a rule, and which rules."""
