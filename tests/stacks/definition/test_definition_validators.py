"""What one item of a definition may not say: every validator of the model, broken and kept."""

from typing import Any

import pytest

from tests.stacks.definition.examples import (
    GONE,
    PRODUCT,
    assert_refused,
    assert_said_in_full,
    edited_at,
    own_rules,
    problems,
    sections,
)

COLD = "servers/main/pools/cold"
WINDOWS = f"{COLD}/loading/warmWindows"
WINDOW = {"name": "nightly", "opens": "0 1 * * *", "durationSeconds": 3600, "models": ["ocr"]}
LAB = "dataPlanes/lab/gpus"
NODES: dict[str, Any] = {"nodes": 1, "product": PRODUCT, "perNode": 1}
UNKNOWN_NODES = {**NODES, "product": "NVIDIA-A30"}
BOUNDS = {"min": 2, "max": 4}

REFUSED: dict[str, list[tuple[dict[str, Any], str, str]]] = {
    "Promotion.hours_of_service_are_counted_somewhere":
        [({"environments/prod/promotion": {"soakHours": 24}}, "»promotion:", "name it in from")],
    "UrlProbe._tokens_travel_encrypted":
        [({"gate/probe": {"kind": "url", "url": "http://127.0.0.1/x", "tokenVariable": "TOKEN"}}, "»probe:",
          "tokenVariable would send a token there")],
    "Alerts._a_service_or_an_address": [({"gate/alerts": {"kind": "prometheus"}}, "»alerts:", "service or url")],
    "Gate._there_is_time_to_settle":
        [({"gate": {"timeoutSeconds": 60, "settleSeconds": 60}}, "»gate:",
          "settleSeconds 60 is not less than timeoutSeconds 60")],
    "Resources._limit_is_at_least_the_request": [
        ({"proxy/resources": {"cpu": "500m", "cpuLimit": "0.4"}}, "»resources:", "cpuLimit 0.4 is less than cpu 500m"),
        # the default asks for 1
        ({f"{COLD}/resources": {"cpuLimit": "999m"}}, "»resources:", "cpuLimit 999m is less than cpu"),
    ],
    "ReplicaBounds._bounds_are_in_order":
        [({"proxy/autoscaling": {"min": 3, "max": 2}}, "»autoscaling:", "min 3 is more than max 2")],
    "Pool._replicas_or_autoscaling":
        [({f"{COLD}/replicas": 1, f"{COLD}/autoscaling": {"kind": "cpu", "min": 1, "max": 2}}, "- »name: cold",
          "replicas and autoscaling cannot stand together")],
    "Proxy._replicas_or_autoscaling":
        [({"proxy/replicas": 2, "environments/prod/proxy": {"autoscaling": BOUNDS}}, "»proxy:",
          "in an overlay, `replicas: null` takes the inherited number away")],
    "Pool._shared_memory_is_part_of_the_memory":
        [({f"{COLD}/sharedMemory": "8Gi"}, "- »name: cold",
          "sharedMemory 8Gi counts against the memory limit, 8Gi, and must be less")],
    "OnDemand._idle_is_at_least_the_lease": [
        ({f"{COLD}/loading/idleSeconds": 14}, "»loading:", "idleSeconds 14 is less than leaseSeconds 15"),
        ({f"{COLD}/loading/leaseSeconds": 301}, "»loading:", "idleSeconds 300 is less than leaseSeconds 301"),
    ],
    "WarmWindow._opens_is_a_cron_expression":
        [({WINDOWS: [{**WINDOW, "opens": "nightly"}]}, "- »name: nightly",
          "opens 'nightly' is no cron expression of five fields")],
    "WarmWindow._time_zone_is_known":
        [({WINDOWS: [{**WINDOW, "timeZone": "Europe/Berlim"}]}, "- »name: nightly",
          "timeZone 'Europe/Berlim' is no IANA time zone")],
    "TritonSettings._extra_arguments_leave_ours_alone": [
        ({"servers/main/triton": {"extraArguments": ["--log-info=true", "--exit-timeout-secs=1"]}}, "»triton:",
         "Tidegate sets it itself, from triton.exitTimeoutSeconds"),
        ({"servers/main/triton": {"extraArguments": ["--http-restricted-api=inference:a=b"]}}, "»triton:",
         "extraArguments may not set --http-restricted-api: Tidegate sets it itself"),
    ],
    "OidcIssuer.an_audience_is_named": [
        ({"proxy/auth/oidc/0/audiences": GONE}, "- »issuer:", "the issuer has no audiences"),
        ({"proxy/auth/oidc/0/audiences": []}, "- »issuer:", "name the audience of this proxy"),
    ],
    "AccessRule.somebody_is_named":
        [({"proxy/access/callers/groups": GONE}, "- »name: callers", "names neither principals nor groups")],
    "_Peer.addresses_stand_alone":
        [({"network/callers/ingress/podLabels": {"app": "x"}}, "- »name: ingress", "cidr stands alone")],
    "_Peer.somebody_is_meant":
        [({"network/reach/identity/cidr": GONE}, "- »name: identity",
          "say who: namespaceLabels (and podLabels), or a cidr")],
    "Model._traffic_is_whole": [
        ({"models/churn/versions": [{"version": 1, "weight": 20}, {"version": 2, "weight": 70}]}, "- »name: churn",
         "the weights of versions must sum to 100, and 20 + 70 is 90"),
        ({"models/churn/versions": [{"version": 1, "weight": 0}]}, "- »name: churn", "and 0 is 0"),
        ({"models/churn/versions": [{"version": 1, "weight": 50}, {"version": 1, "weight": 50}]}, "- »name: churn",
         "version 1 stands twice"),
    ],
    "Model._a_candidate_has_no_traffic":
        [({"models/churn/versions": [{"version": 1, "weight": 100}],
          "models/churn/mirror": {"version": 1, "percent": 5}}, "- »name: churn",
          "version 1 has traffic, so it is no candidate for mirror")],
    "Model.a_mirror_has_versions_beside_it": [
        ({"models/churn/mirror": {"version": 2, "percent": 5}}, "- »name: churn", "mirror stands beside versions"),
        ({"models/churn/alias": "champion", "models/churn/mirror": {"version": 2, "percent": 5}}, "- »name: churn",
         "mirror stands beside versions"),
    ],
    "Model.traffic_is_said_once":
        [({"models/churn/versions": [{"version": 1, "weight": 100}], "models/churn/alias": "champion"},
          "- »name: churn", "versions and alias cannot stand together")],
    "GpuNodes.cut_or_shared":
        [({LAB: [{**NODES, "mig": {"slices": {"1g.10gb": 1}}, "sharing": {"kind": "mps", "replicas": 2}}]},
          "- »nodes: 1", "mig and sharing cannot stand together")],
    "GpuNodes._slices_fit_on_one_gpu": [
        ({LAB: [{**NODES, "mig": {"slices": {"1g.5gb": 1}}}]}, "- »nodes: 1",
         f"{PRODUCT} has no MIG profile 1g.5gb; it has 1g.10gb, 1g.20gb"),
        ({LAB: [{**NODES, "mig": {"slices": {"3g.40gb": 2, "1g.10gb": 1}}}]}, "- »nodes: 1",
         f"these slices do not fit on one {PRODUCT} together: 2 × 3g.40gb, 1 × 1g.10gb"),
        ({LAB: [{**NODES, "mig": {"strategy": "single", "slices": {"3g.40gb": 1, "1g.10gb": 1}}}]}, "- »nodes: 1",
         "MIG strategy single needs slices of one profile"),
        # whatever the product
        ({LAB: [{**UNKNOWN_NODES, "mig": {"strategy": "single", "slices": {"1g.6gb": 1, "2g.12gb": 1}}}]},
         "- »nodes: 1", "MIG strategy single needs slices of one profile"),
    ],
    "TritonServer._strict_readiness_is_for_preloaded_models":
        [({"servers/main/triton": {"strictReadiness": True}}, "- »name: main", "cannot stand together")],
    "Resources._memory_is_enough_for_a_process":
        [({"proxy/resources": {"memory": "2Mi"}}, "»resources:", "is a unit missing")],
    "DraPlacement.slices_have_a_profile":
        [({f"{COLD}/placement": {"kind": "dra"}}, "»placement:", "say which profile")],
    "DraPlacement.whole_gpus_have_no_profile":
        [({f"{COLD}/placement": {"kind": "dra", "deviceClass": "gpu.nvidia.com", "profile": "1g.10gb"}}, "»placement:",
          "take profile away")],
    "Environment._production_is_no_trial":
        [({"environments/prod/local": True}, "- »name: prod", "production and local cannot stand together")],
    "Environment.namespace": [
        ({"environments/dev/namespace": "kube-system"}, "namespace: »kube-system",
         "'kube-system' belongs to Kubernetes"),
        ({"environments/dev/namespace": "default"}, "namespace: »default", "'default' belongs to Kubernetes"),
    ],
    "Environment._namespace_is_its_own":
        [({"environments/dev/name": "d" * 60, "dataPlanes/lab/environments": ["d" * 60]}, "- »name: ddd",
          "has 69 characters, and it may have 63")],
    "Environment.labels": [
        ({"environments/dev/labels": {"pod-security.kubernetes.io/enforce": "privileged"}}, "»labels:",
         "'pod-security.kubernetes.io/enforce' is a label that Tidegate or Kubernetes sets itself"),
        ({"environments/dev/labels": {"app.kubernetes.io/name": "x"}}, "»labels:",
         "'app.kubernetes.io/name' is a label that"),
    ],
    "MigPlacement.a_strategy_of_single_names_a_product":
        [({f"{COLD}/placement": {"kind": "mig", "profile": "1g.10gb", "strategy": "single"}}, "»placement:",
          "MIG strategy single needs a product")],
    "TritonSettings.environment":
        [({"servers/main/triton": {"environment": {"HOME": "/root"}}}, "»environment:",
          "'HOME' is a variable that Tidegate sets itself")],
    "TritonServer._environment_leaves_the_identity_alone":
        [({"servers/main/identity": {"cloud": "azure", "clientId": "0f6b8a3e-0000-4000-8000-000000000001"},
          "servers/main/triton": {"environment": {"AZURE_STORAGE_AUTH_TYPE": "key"}}}, "- »name: main",
          "beside an identity of Azure")],
    "IngressExposure.annotations":
        [({"proxy/exposure": {"kind": "ingress", "host": "a.example.com",
          "annotations": {"nginx.ingress.kubernetes.io/server-snippet": "return 200;"}}}, "»annotations:",
          "'nginx.ingress.kubernetes.io/server-snippet' leads requests past the proxy")],
    "Environment._annotations_leave_ours_alone":
        [({"environments/dev/annotations": {"tidegate.dev/guardrails": "{}"}}, "- »name: dev",
          "annotations may not set tidegate.dev/guardrails")],
}  # fmt: skip

ACCEPTED: dict[str, dict[str, Any]] = {
    "MigPlacement.a_strategy_of_single_names_a_product": {f"{COLD}/placement/strategy": "single",
        f"{LAB}/1": {**NODES, "mig": {"strategy": "single", "slices": {"1g.10gb": 7}}},
        "dataPlanes/east/gpus/1": {**NODES, "mig": {"strategy": "single", "slices": {"1g.10gb": 7}}}},
    "DraPlacement.whole_gpus_have_no_profile": {f"{COLD}/placement": {"kind": "dra", "deviceClass": "gpu.nvidia.com"},
        f"{COLD}/loading/capacity": "4Gi", f"{LAB}/1": UNKNOWN_NODES, "dataPlanes/east/gpus/1": UNKNOWN_NODES},
    "TritonSettings.environment": {"servers/main/triton": {"environment": {"HOMELY": "/root"}}},
    "TritonServer._environment_leaves_the_identity_alone":
        {"servers/main/triton": {"environment": {"AZURE_STORAGE_AUTH_TYPE": "key"}}},
    "IngressExposure.annotations": {"proxy/exposure": {"kind": "ingress", "host": "a.example.com",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "64m"}}},
    "Resources._memory_is_enough_for_a_process": {"proxy/resources": {"memory": "16Mi"}},
    "Environment._namespace_is_its_own": {"environments/dev/namespace": "a" * 63},
    "Resources._limit_is_at_least_the_request": {"proxy/resources": {"cpu": "500m", "cpuLimit": "0.5"}},
    "ReplicaBounds._bounds_are_in_order": {"proxy/autoscaling": {"min": 2, "max": 2}},
    "Proxy._replicas_or_autoscaling": {"proxy/replicas": 2,
        "environments/prod/proxy": {"autoscaling": BOUNDS, "replicas": None}},
    "Pool._shared_memory_is_part_of_the_memory": {f"{COLD}/sharedMemory": "8191Mi"},
    "OnDemand._idle_is_at_least_the_lease": {f"{COLD}/loading/idleSeconds": 15},
    "WarmWindow._opens_is_a_cron_expression": {WINDOWS: [{**WINDOW, "opens": "*/5 8-18 * * MON-FRI"}]},
    "TritonSettings._extra_arguments_leave_ours_alone": {"servers/main/triton": {"extraArguments": ["--cuda-graph=x",
        "--model-load-retry-count=2"]}},
    "Alerts._a_service_or_an_address": {"gate/alerts": {"kind": "alertmanager",
        "service": {"name": "alertmanager-operated", "port": 9093}}},
    "Gate._there_is_time_to_settle": {"gate": {"timeoutSeconds": 60, "settleSeconds": 59}},
    "Model.traffic_is_said_once": {"models/churn/versions": [], "models/churn/alias": "champion"},
    "Model.a_mirror_has_versions_beside_it": {"models/churn/versions": [{"version": 1, "weight": 100}],
        "models/churn/mirror": {"version": 2, "percent": 100}},
    "Model._a_candidate_has_no_traffic": {"models/churn/versions": [{"version": 1, "weight": 100},
        {"version": 2, "weight": 0}], "models/churn/mirror": {"version": 2, "percent": 1}},
    "Model._traffic_is_whole": {"models/churn/versions": [{"version": 1, "weight": 100}, {"version": 2, "weight": 0}]},
    "GpuNodes._slices_fit_on_one_gpu": {f"{LAB}/1": {**UNKNOWN_NODES, "mig": {"slices": {"1g.6gb": 4}}}},
}  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, rows in REFUSED.items() for row in rows])
def test_what_a_validator_refuses_is_said_once_where_it_stands(row: tuple[Any, str, str]) -> None:
    edits, at, what = row
    assert_refused(edited_at(edits), at, what)


@pytest.mark.parametrize("validator", ACCEPTED)
def test_what_a_validator_accepts_is_let_through(validator: str) -> None:
    assert problems(edited_at(ACCEPTED[validator])) == []


def test_every_validator_of_the_model_is_broken_here() -> None:
    assert {rule for part in sections() for rule in own_rules(part)} <= REFUSED.keys()


@pytest.mark.parametrize(
    "argument", ["--model-contr=none", "--http-restrict=x", "--allow-htt=false", "--exit-timeout=1", "--http-p=1"]
)
def test_an_abbreviation_of_an_argument_that_tidegate_sets_is_refused_too(argument: str) -> None:
    """Triton reads its command line with getopt_long, which takes any beginning that fits one option only."""
    text = edited_at({"servers/main/triton": {"extraArguments": [argument]}})
    assert_refused(text, "»triton:", "Tidegate sets it itself")


@pytest.mark.parametrize(
    "opens",
    ["", "* * * *", "* * * * * *", "@daily", "60 * * * *", "* 24 * * *", "* * 0 * *", "0 0 30 2 *", "a b c d e",
        "² * * * *", "*/0 * * * *", "5-1 * * * *", "1,,2 * * * *", "* * * * MON#9", "9" * 5_000 + " * * * *"],
)  # fmt: skip
def test_what_is_no_cron_expression_of_five_fields_is_refused(opens: str) -> None:
    found = problems(edited_at({WINDOWS: [{**WINDOW, "opens": opens}]}))
    assert len(found) == 1, found
    assert_said_in_full(found[0])


@pytest.mark.parametrize("zone", ["", "Europe", "../UTC", "/etc/passwd", "a" * 5_000, "zone.tab", "localtime", "é"])
def test_what_is_no_time_zone_everywhere_is_refused(zone: str) -> None:
    found = problems(edited_at({WINDOWS: [{**WINDOW, "timeZone": zone}]}))
    assert len(found) == 1, found
    assert_said_in_full(found[0])
