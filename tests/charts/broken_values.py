"""Values of the chart that break each rule of the definition, and rules that no values can break."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

Values = dict[str, Any]


def named(items: list[Any], name: str) -> Any:
    (found,) = (item for item in items if item["name"] == name)
    return found


def pool(values: Values, server: str = "main", name: str = "cold") -> Any:
    return named(named(values["servers"], server)["pools"], name)


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

    by: str
    """`schema`, or `check-chart` where a schema cannot say it."""
    edit: Callable[[Values], object]
    at: str
    said: str


@dataclass(frozen=True)
class Never:
    """Why no values can break a rule."""

    why: str


OTHERS = Never("values are of one environment, and the rule compares several")
INVENTORY = Never("values do not say which GPUs a data plane has")
ROLLOUT = Never("it is about rollouts, of which values say nothing")
PROMOTION = Never("promotion is the client's, and values say nothing of it")


def schema(edit: Callable[[Values], object], at: str, said: str) -> Refused:
    return Refused("schema", edit, at, said)


def check(edit: Callable[[Values], object], at: str, said: str) -> Refused:
    return Refused("check-chart", edit, at, said)


def placed(**placement: Any) -> Callable[[Values], object]:
    return lambda values: pool(values).update(placement=placement)


def loading(**keys: Any) -> Callable[[Values], object]:
    return lambda values: pool(values)["loading"].update(keys)


def model(name: str, server: str = "main", of: str = "cold", **keys: Any) -> Callable[[Values], object]:
    return lambda values: named(pool(values, server, of)["models"], name).update(keys)


def triton(server: str = "main", **keys: Any) -> Callable[[Values], object]:
    return lambda values: named(values["servers"], server).update(triton=keys)


def proxy(**keys: Any) -> Callable[[Values], object]:
    return lambda values: values["proxy"].update(keys)


def two_pools_of_one_name(values: Values) -> None:
    named(values["servers"], "bucket")["name"] = "main-cold"
    named(values["servers"], "main-cold")["pools"][0]["name"] = "x"
    pool(values)["name"] = "cold-x"


def window(**keys: Any) -> Callable[[Values], object]:
    return lambda values: pool(values)["loading"]["warmWindows"][0].update(keys)


def namespace(**keys: Any) -> Callable[[Values], object]:
    return lambda values: values["namespace"].update(keys)


def kept_by_somebody_else(values: Values) -> None:
    values["claims"] = [{"name": "models"}]


SNIPPET = {"nginx.ingress.kubernetes.io/server-snippet": "return 200;"}
PROXY_ONLY = [{"name": "identity", "by": ["proxy"], "cidr": "10.0.0.0/8"}]
SERVERS_ONLY = [{"name": "store", "by": ["servers"], "cidr": "10.0.0.0/8"}]
ROUTE = {"kind": "http-route", "host": "a.example.com", "gateway": "public", "gatewayNamespace": "gateways"}
ISSUER = {"issuer": "https://idp.example.com", "audiences": ["inference"]}

RULES: dict[str, Refused | Never] = {
    # Rules over several items.
    "a_gateway_is_given_no_certificate_of_the_proxy":
        check(proxy(exposure=ROUTE, tls={"secret": "tls"}), "proxy.tls", "cannot stand together"),
    "a_namespace_belongs_to_its_environment": check(
        lambda values: (values.update(domino={}), values["namespace"].update(name="domino-compute")), "",
        "would take over domino-compute"),
    "access_rules_name_servers_and_models_that_exist": check(
        proxy(access=[{"name": "all", "groups": ["g"], "models": ["nobody"]}]), "proxy.access[all].models[0]",
        "names models that are not there"),
    "access_rules_name_sources_that_are_believed": check(
        proxy(access=[{"name": "all", "groups": ["g"], "source": "api-keys"}]), "proxy.access[all].source",
        "whom proxy.auth does not believe"),
    "access_rules_say_who_vouches_where_several_do": check(
        proxy(
            auth={"oidc": [ISSUER, {**ISSUER, "issuer": "https://other.example.com"}]},
            access=[{"name": "all", "groups": ["g"]}],
        ),
        "proxy.access[all].groups",
        "does not say who vouches for its groups",
    ),
    "canaries_are_planes_of_the_first_wave": ROLLOUT,
    "claims_that_exist_are_none_of_ours": check(kept_by_somebody_else, "claims[models].name", "which is made for"),
    "cloud_identity_fits_the_object_store": check(
        lambda values: named(values["servers"], "bucket")["repository"].update(url="gs://models/prod"),
        "servers[bucket].identity.cloud", "with an identity of aws"),
    "data_planes_name_environments_that_exist": OTHERS,
    "domino_principals_need_the_domino_integration":
        check(proxy(auth={"dominoPrincipal": True}), "proxy.auth.dominoPrincipal", "no domino section"),
    "every_environment_lives_somewhere": OTHERS,
    "gpus_of_a_replica_are_in_one_node": INVENTORY,
    "groups_that_promote_are_told_by_an_issuer": PROMOTION,
    "host_paths_are_for_local_environments": check(
        lambda values: values["datasets"][0].update(source={"kind": "hostPath", "path": "/models"}),
        "datasets[models].source.kind", "is not local"),
    "images_have_a_digest": Never("the guardrail images-are-pinned-by-digest says it of the rendered objects"),
    "images_that_are_used_are_named":
        check(lambda values: values.update(evictionPolicyImage=None), "evictionPolicyImage", "eviction-policy"),
    "mig_profiles_exist_on_their_product": check(placed(kind="mig", profile="1g.5gb", product="NVIDIA-A100-SXM4-80GB"),
        "servers[main].pools[cold].placement.profile", "has no MIG profile 1g.5gb"),
    "mirrors_are_of_registries_that_are_used": Never("values spell out whole images, mirrors included"),
    "models_name_servers_and_pools_that_exist": Never("in values a model stands below the pool that serves it"),
    "models_stay_idle_longer_than_a_lease": check(model("ocr", idleSeconds=3),
        "servers[main].pools[cold].models[ocr].idleSeconds", "less than leaseSeconds 15"),
    "no_issuer_stands_twice": check(proxy(auth={"oidc": [ISSUER, ISSUER]}), "proxy.auth.oidc[1].issuer", "twice"),
    "no_two_data_planes_share_a_cluster": OTHERS,
    "no_two_environments_of_a_cluster_share_a_namespace": OTHERS,
    "no_two_pools_become_one_object":
        check(two_pools_of_one_name, "servers[main-cold].pools[x].name", "would share the Kubernetes name main-cold-x"),
    "no_two_stacks_of_a_cluster_share_a_host_and_path": OTHERS,
    "no_two_stacks_of_a_cluster_share_a_volume": OTHERS,
    "no_two_stacks_share_a_name": OTHERS,
    "node_selectors_leave_the_placement_alone": check(
        lambda values: pool(values).update(nodeSelector={"nvidia.com/gpu.product": "x"}), "nodeSelector",
        "which follows from its placement"),
    "nobody_is_granted_everything_in_production":
        check(proxy(access=[{"name": "all", "groups": ["*"]}]), "proxy.access[all]", "lets everybody call every model"),
    "on_demand_models_fit_their_capacity": check(model("fraud", footprintBytes=9_000_000_001),
        "servers[main].pools[cold].models[fraud].footprintBytes", "it could never be loaded"),
    "only_on_demand_models_are_pinned_or_idle": check(model("churn", of="warm", pinned=True),
        "servers[main].pools[warm].models[churn].pinned", "means nothing"),
    "pool_names_leave_room_for_what_kubernetes_appends":
        check(lambda values: pool(values).update(name="p" * 48), f"pools[{'p' * 48}].name", "may have 52"),
    "preloaded_models_fit_their_slice":
        check(model("churn", of="warm", footprintBytes=20_000_000_001), "pools[warm].placement", "sum to 20.0 GB"),
    "production_shares_no_bucket_that_others_may_write": OTHERS,
    "production_shares_no_dataset_that_others_may_write": OTHERS,
    "products_that_are_asked_for_are_there": INVENTORY,
    "promotions_begin_somewhere": PROMOTION,
    "promotions_come_from_other_environments": PROMOTION,
    "repositories_name_datasets_that_exist": check(
        lambda values: named(values["servers"], "main")["repository"].update(claim="nobodys"),
        "servers[main].repository.claim", 'reads an unknown dataset, "nobodys"'),
    "secrets_are_never_written_inline":
        check(triton(environment={"AWS_SECRET_ACCESS_KEY": "x"}), "AWS_SECRET_ACCESS_KEY", "looks like a secret"),
    "servers_can_reach_their_object_store": check(lambda values: values["network"].update(reach=PROXY_ONLY),
        "servers[bucket].repository.url", "may reach nothing outside"),
    "slices_asked_for_are_there": INVENTORY,
    "somebody_can_authenticate":
        check(lambda values: values["proxy"]["auth"].update(oidc=[]), "proxy.auth", "no way to know its callers"),
    "somebody_may_call_the_proxy":
        check(lambda values: values["network"].update(callers=[]), "proxy.exposure.kind", "may not call the proxy"),
    "the_lock_holds_digests_of_these_images_only": Never("values have no lock: digests stand in the images"),
    "the_proxy_can_reach_its_identity_provider": check(lambda values: values["network"].update(reach=SERVERS_ONLY),
        "proxy.auth.oidc[0].issuer", "cannot fetch the keys"),
    "those_who_promote_may_look_and_call": PROMOTION,
    "versions_can_come_from_their_environment": PROMOTION,
    "warm_windows_name_models_of_their_pool":
        check(window(models=["churn"]), "warmWindows[nightly].models", "a model that this pool does not serve"),
    "whole_gpus_are_told_from_slices": INVENTORY,
    # What one item may not say.
    "AccessRule.somebody_is_named":
        schema(proxy(access=[{"name": "all"}]), "proxy.access[all]", "neither principals nor"),
    "Alerts._a_service_or_an_address": ROLLOUT,
    "DraPlacement.slices_have_a_profile": schema(placed(kind="dra"), "pools[cold].placement", "say which profile"),
    "DraPlacement.whole_gpus_have_no_profile":
        schema(placed(kind="dra", deviceClass="gpu.nvidia.com", profile="1g.10gb"), "placement", "take profile away"),
    "Environment._annotations_leave_ours_alone":
        check(namespace(annotations={"tidegate.dev/more": "x"}), "", "annotations may not set tidegate.dev/more"),
    "Environment._namespace_is_its_own": Never("the form of a namespace in values already bounds its length"),
    "Environment._production_is_no_trial": Never("an annotation tells one kind of environment of three"),
    "Gate._there_is_time_to_settle": ROLLOUT,
    "GpuNodes._slices_fit_on_one_gpu": INVENTORY,
    "GpuNodes.cut_or_shared": INVENTORY,
    "MigPlacement.a_strategy_of_single_names_a_product": schema(
        placed(kind="mig", profile="1g.10gb", strategy="single"), "placement", "strategy single needs a product"),
    "Model._a_candidate_has_no_traffic":
        check(model("fraud", mirror={"version": 1, "percent": 5}), "models[fraud]", "version 1 has traffic"),
    "Model._traffic_is_whole": check(model("fraud", versions=[{"version": 1, "weight": 60}]), "models[fraud]",
        "must sum to 100, and 60 is 60"),
    "Model.a_mirror_has_versions_beside_it":
        schema(model("ocr", mirror={"version": 2, "percent": 5}), "models[ocr]", "mirror stands beside versions"),
    "Model.traffic_is_said_once": schema(model("fraud", alias="champion"), "models[fraud]", "cannot stand together"),
    "OidcIssuer.an_audience_is_named": schema(proxy(auth={"oidc": [{**ISSUER, "audiences": []}]}), "proxy.auth.oidc[0]",
        "the issuer has no audiences"),
    "OnDemand._idle_is_at_least_the_lease": check(loading(idleSeconds=5), "pools[cold].loading", "idleSeconds 5"),
    "Pool._replicas_or_autoscaling": Never("in values the number has no effect where an autoscaler owns it"),
    "Pool._shared_memory_is_part_of_the_memory":
        check(lambda values: pool(values).update(sharedMemory="8Gi"), "pools[cold]", "counts against the memory limit"),
    "Promotion.hours_of_service_are_counted_somewhere": PROMOTION,
    "Proxy._replicas_or_autoscaling": Never("in values the number has no effect where an autoscaler owns it"),
    "ReplicaBounds._bounds_are_in_order":
        check(proxy(autoscaling={"min": 3, "max": 2}), "proxy.autoscaling", "min 3 is more than max 2"),
    "Resources._limit_is_at_least_the_request":
        check(proxy(resources={"cpu": "2", "cpuLimit": "1"}), "proxy.resources", "cpuLimit 1 is less than cpu 2"),
    "Resources._memory_is_enough_for_a_process":
        check(proxy(resources={"memory": "2Mi"}), "proxy.resources", "less than any process needs"),
    "TritonServer._environment_leaves_the_identity_alone": check(
        lambda values: named(values["servers"], "bucket").update(
            identity={"cloud": "azure", "clientId": "0f6b8a3e-0000-4000-8000-000000000001"},
            repository={"kind": "object-store", "url": "as://account/models"},
            triton={"environment": {"AZURE_STORAGE_AUTH_TYPE": "key"}},
        ),
        "servers[bucket]",
        "beside an identity of Azure",
    ),
    "TritonServer._strict_readiness_is_for_preloaded_models":
        check(triton(strictReadiness=True), "servers[main]", "strictReadiness and an on-demand pool"),
    "TritonSettings._extra_arguments_leave_ours_alone":
        check(triton(arguments=["--model-contr=none"]), "servers[main].triton", "Tidegate sets it itself"),
    "UrlProbe._tokens_travel_encrypted": ROLLOUT,
    "WarmWindow._opens_is_a_cron_expression": check(window(opens="0 25 * * *"), "warmWindows", "no cron expression"),
    "WarmWindow._time_zone_is_known": check(window(timeZone="Mars/Base"), "warmWindows", "no IANA time zone"),
    "_Peer.addresses_stand_alone": schema(lambda values: values["network"]["callers"][0].update(cidr="10.0.0.0/8"),
        "network.callers[ingress]", "cidr stands alone"),
    "_Peer.somebody_is_meant": schema(lambda values: values["network"]["callers"][0].update(namespaceLabels={}),
        "network.callers[ingress]", "say who"),
    # Of texts, what their pattern cannot say.
    "is a glob, and promotion takes names as they are: name each, or a group that has them": PROMOTION,
    "is a label that Tidegate or Kubernetes sets itself": schema(namespace(labels={"app.kubernetes.io/name": "x"}),
        "namespace.labels", "Tidegate or Kubernetes sets itself"),
    "belongs to Kubernetes; an environment owns its namespace":
        schema(namespace(name="kube-system"), "namespace.name", "belongs to Kubernetes"),
    "is a tag that moves with every push: name a version":
        check(proxy(image="registry.example.com/proxy:latest"), "proxy.image", "moves with every push"),
    "leads requests past the proxy, or lets whoever may write it run what they like in the ingress controller": schema(
        proxy(exposure={"kind": "ingress", "host": "a.example.com", "annotations": SNIPPET}),
        "proxy.exposure.annotations", "leads requests past the proxy"),
    "is an alias that MLflow keeps for itself; name another, such as champion":
        schema(model("ocr", alias="Latest"), "models[ocr].alias", "MLflow keeps for itself"),
    "is a variable that Tidegate sets itself: the root file system is read-only":
        schema(triton(environment={"HOME": "/"}), "environment.HOME", "Tidegate sets itself"),
    "carries an ending that the device plugin adds; leave -MIG-… and -SHARED out": schema(
        placed(kind="gpu", product="NVIDIA-L40S-SHARED"), "placement.product", "an ending that the device plugin adds"),
    "is an address, and a host name is wanted":
        schema(proxy(exposure={"kind": "ingress", "host": "10.0.0.1"}), "proxy.exposure.host", "a host name is wanted"),
    "must be a path below the volume's root, without . or .. and without a slash at its start": schema(
        lambda values: named(values["servers"], "main")["repository"].update(subPath="../other"),
        "servers[main].repository.subPath", "without . or .."),
    "must be without . and ..": schema(
        lambda values: values["datasets"][0]["source"].update(path="/models/../secrets"),
        "datasets[models].source.path", "must be without . and .."),
    "_day": Never("waivers stand in an annotation, which the guardrails read"),
    "_known": Never("guardrails stand in an annotation, which they read themselves"),
    "_network": check(lambda values: values["network"]["reach"][0].update(cidr="10.0.0.1/8"),
        "network.reach[identity].cidr", "has host bits set"),
    "_whole_bytes": check(lambda values: pool(values).update(scratch="2"), "servers[main].pools[cold].scratch",
        "is a unit missing"),
    "_whole_millicores": check(proxy(resources={"cpu": "0.0001"}), "proxy.resources.cpu", "finer than a thousandth"),
}  # fmt: skip
