"""The promises of the objects of every environment: one function for each, whose name is the promise.
`tests/guardrails` checks the guardrails, for our definitions and any valid one."""

from collections.abc import Callable

from tidegate_contracts import eviction, eviction_process, proxy_process, proxy_settings, routing

from components.apply_order import APPLY_ORDER
from components.evaluate import KubernetesObject
from stacks.definition.base import quantity_value
from stacks.definition.pods import Pods
from tests import schemas

from .objects import WORKLOADS, containers, is_engine, name_of, named, of_kind, ports, selected, template

Objects = list[KubernetesObject]


def names_are_unique(objects: Objects) -> None:
    identities = [(o["apiVersion"], o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
    assert len(set(identities)) == len(identities)


def every_kind_has_its_place_in_the_order_of_application(objects: Objects) -> None:
    assert {item["kind"] for item in objects} <= set(APPLY_ORDER)


def every_object_fulfils_its_schema(objects: Objects) -> None:
    assert schemas.check(objects) == []


def everything_stands_in_the_namespace_of_the_environment(objects: Objects) -> None:
    (namespace,) = of_kind(objects, "Namespace")
    outside = {"Namespace", "PersistentVolume"}
    for item in objects:
        if item["kind"] not in outside:
            assert item["metadata"]["namespace"] == namespace["metadata"]["name"], name_of(item)


def every_object_carries_the_standard_labels(objects: Objects) -> None:
    for item in objects:
        labels = item["metadata"]["labels"]
        for key in ("name", "instance", "part-of", "managed-by"):
            assert labels.get(f"app.kubernetes.io/{key}"), name_of(item)


def selectors_match_their_own_pods_and_no_others(objects: Objects) -> None:
    for workload in of_kind(objects, *WORKLOADS):
        assert selected(objects, workload["spec"]["selector"]) == [workload]
    for item in of_kind(objects, "PodDisruptionBudget"):
        assert [name_of(one).split()[1] for one in selected(objects, item["spec"]["selector"])] == [
            item["metadata"]["name"]
        ]
    for item in of_kind(objects, "Service"):
        (workload,) = selected(objects, {"matchLabels": item["spec"]["selector"]})
        name = workload["metadata"]["name"]
        assert item["metadata"]["name"] in (name, workload["spec"].get("serviceName", f"{name}-headless"))


def services_lead_to_ports_that_containers_have_and_headless_ones_to_the_same_number(objects: Objects) -> None:
    """DNS of a headless Service returns addresses of pods, so clients use its port numbers on the pods."""
    for item in of_kind(objects, "Service"):
        (workload,) = selected(objects, {"matchLabels": item["spec"]["selector"]})
        for port in item["spec"]["ports"]:
            target = port["targetPort"]
            assert target in {*ports(workload), *ports(workload).values()}, (name_of(item), port)
            if item["spec"].get("clusterIP") == "None":
                assert ports(workload).get(target, target) == port["port"], name_of(item)


def grpc_with_a_certificate_is_not_taken_for_plain_grpc(objects: Objects) -> None:
    for item in of_kind(objects, "Service"):
        (workload,) = selected(objects, {"matchLabels": item["spec"]["selector"]})
        has_tls = "tls" in {volume["name"] for volume in template(workload)["spec"]["volumes"]}
        for port in item["spec"]["ports"]:
            if port["name"] == "grpc":
                assert port.get("appProtocol") == ("https" if has_tls else None), name_of(item)


def exposures_lead_to_the_proxy_service(objects: Objects) -> None:
    service = named(objects, "Service", "inference-proxy")
    offered = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    settings = named(objects, "ConfigMap", "inference-proxy-settings")["data"]
    path_it_knows = settings.get(proxy_settings.variable("path"), "/")
    for item in of_kind(objects, "Ingress"):
        for rule in item["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                backend = path["backend"]["service"]
                assert backend["name"] == "inference-proxy"
                assert backend["port"]["name"] in offered
                assert (path["path"], path["pathType"]) == (path_it_knows, "Prefix")
    for item in of_kind(objects, "HTTPRoute"):
        for rule in item["spec"]["rules"]:
            assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": path_it_knows}}]
            for backend in rule["backendRefs"]:
                assert backend["name"] == "inference-proxy"
                assert backend["port"] in offered.values()


def probes_ask_ports_of_their_own_container(objects: Objects) -> None:
    for workload in of_kind(objects, *WORKLOADS):
        for one in containers(workload):
            own = {port["name"] for port in one["ports"]}
            for kind in ("startupProbe", "livenessProbe"):
                assert one[kind]["httpGet"]["port"] in own, (name_of(workload), one["name"], kind)
            if one.get("restartPolicy") != "Always":
                assert one["readinessProbe"]["httpGet"]["port"] in own


def network_policies_open_ports_that_containers_listen_on(objects: Objects) -> None:
    for item in of_kind(objects, "NetworkPolicy"):
        spec = item["spec"]
        targets = selected(objects, spec["podSelector"])
        for rule in spec.get("ingress", []):
            opened = {port["port"] for port in rule["ports"] if "port" in port}
            for workload in targets:
                assert is_engine(workload) or opened <= {*ports(workload).values()}, name_of(item)


def mounted_volumes_exist_and_volumes_are_mounted(objects: Objects) -> None:
    for workload in of_kind(objects, *WORKLOADS):
        volumes = {volume["name"] for volume in template(workload)["spec"]["volumes"]}
        mounted = {mount["name"] for one in containers(workload) for mount in one.get("volumeMounts", [])}
        assert volumes == mounted, name_of(workload)


def volumes_name_config_maps_and_claims_that_exist(objects: Objects, given_claims: frozenset[str]) -> None:
    config_maps = {item["metadata"]["name"] for item in of_kind(objects, "ConfigMap")}
    claims = {item["metadata"]["name"] for item in of_kind(objects, "PersistentVolumeClaim")} | given_claims
    for workload in of_kind(objects, *WORKLOADS):
        for volume in template(workload)["spec"]["volumes"]:
            if "configMap" in volume:
                assert volume["configMap"]["name"] in config_maps
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims
                assert volume["persistentVolumeClaim"]["readOnly"] is True
        for one in containers(workload):
            for source in one.get("envFrom", []):
                assert source["configMapRef"]["name"] in config_maps


def claims_and_volumes_belong_to_each_other(objects: Objects) -> None:
    volumes = {item["metadata"]["name"]: item["spec"] for item in of_kind(objects, "PersistentVolume")}
    for claim in of_kind(objects, "PersistentVolumeClaim"):
        volume = volumes.pop(claim["spec"]["volumeName"])
        reference = volume["claimRef"]
        assert (reference["namespace"], reference["name"]) == (
            claim["metadata"]["namespace"],
            claim["metadata"]["name"],
        )
        assert volume["accessModes"] == claim["spec"]["accessModes"]
        assert volume.get("storageClassName", "") == claim["spec"]["storageClassName"]
        requested = claim["spec"]["resources"]["requests"]["storage"]
        assert quantity_value(requested) <= quantity_value(volume["capacity"]["storage"])
    assert not volumes


def service_accounts_exist(objects: Objects) -> None:
    accounts = {item["metadata"]["name"] for item in of_kind(objects, "ServiceAccount")}
    for workload in of_kind(objects, *WORKLOADS):
        assert template(workload)["spec"]["serviceAccountName"] in accounts


def limits_are_at_least_requests(objects: Objects) -> None:
    for workload in of_kind(objects, *WORKLOADS):
        for one in containers(workload):
            resources = one["resources"]
            for key, request in resources["requests"].items():
                if key in resources["limits"]:
                    assert quantity_value(resources["limits"][key]) >= quantity_value(request), name_of(workload)


def containers_of_servers_see_a_gpu_only_if_they_ask_for_one(objects: Objects) -> None:
    for workload in of_kind(objects, *WORKLOADS):
        for one in containers(workload):
            if one["name"] in ("triton", "engine", "frontend", "metrics"):
                limits, claims = one["resources"]["limits"], one["resources"].get("claims", [])
                has_gpu = bool(claims) or any(key.startswith("nvidia.com/") for key in limits)
                values = [
                    variable.get("value") for variable in one["env"] if variable["name"] == "NVIDIA_VISIBLE_DEVICES"
                ]
                assert values == ([] if has_gpu else ["void"]), (name_of(workload), one["name"])


def on_demand_servers_have_their_policy_and_its_secret_in_the_pod(objects: Objects) -> None:
    for workload in of_kind(objects, "StatefulSet"):
        spec = template(workload)["spec"]
        (triton,) = spec["containers"]
        if triton["name"] != "triton":
            continue
        on_demand = "--model-control-mode=explicit" in triton["args"]
        sidecars = [one["name"] for one in spec.get("initContainers", []) if one["restartPolicy"] == "Always"]
        assert sidecars == (["eviction-policy"] if on_demand else [])
        assert all(one in triton["command"][2] for one in ("--http-restricted-api=", "--grpc-restricted-protocol="))
        if on_demand:
            (control,) = (volume for volume in spec["volumes"] if volume["name"] == "control")
            assert control["emptyDir"]["medium"] == "Memory"
            mounts = {one["name"]: one["mountPath"] for one in triton["volumeMounts"]}
            assert mounts["control"] == eviction_process.CONTROL_ROOT
            assert eviction_process.CONTROL_SECRET_FILE in triton["command"][2]


def the_routing_table_is_one_and_names_services_that_exist(objects: Objects) -> None:
    data = named(objects, "ConfigMap", "inference-proxy-routing")["data"]
    table = routing.RoutingTable.model_validate_json(data[proxy_process.ROUTING_FILE])
    routing.AccessTable.model_validate_json(data[proxy_process.ACCESS_FILE])
    services = {item["metadata"]["name"]: item for item in of_kind(objects, "Service")}
    for server in table.servers:
        for pool in server.pools:
            name, namespace, _ = pool.host.split(".")
            service = services[name]
            assert service["metadata"]["namespace"] == namespace
            offered = {port["port"] for port in service["spec"]["ports"]}
            assert {pool.http_port, pool.grpc_port, pool.lease_port} - {None} == offered
    pools = {(server.name, pool.name) for server in table.servers for pool in server.pools}
    assert {(model.server, model.pool) for model in table.models} <= pools


def the_proxy_s_variables_are_settings_of_its(objects: Objects) -> None:
    data = named(objects, "ConfigMap", "inference-proxy-settings")["data"]
    names = {proxy_settings.variable(field): field for field in proxy_settings.ProxySettings.model_fields}
    found = proxy_settings.ProxySettings.model_validate({names[key]: value for key, value in data.items()})
    assert {key: str(getattr(found, names[key])).lower() for key in data} == {
        key: value.lower() for key, value in data.items()
    }


def eviction_settings_are_such(objects: Objects) -> None:
    found = [item for item in of_kind(objects, "ConfigMap") if eviction_process.SETTINGS_FILE in item["data"]]
    explicit = [
        item
        for item in of_kind(objects, "StatefulSet")
        if "--model-control-mode=explicit" in containers(item)[-1].get("args", ())
    ]
    assert len(found) == len(explicit)
    for item in found:
        eviction.EvictionSettings.model_validate_json(item["data"][eviction_process.SETTINGS_FILE])


def monitors_read_ports_that_exist(objects: Objects) -> None:
    for item in of_kind(objects, "PodMonitor"):
        for workload in selected(objects, item["spec"]["selector"]):
            for endpoint in item["spec"]["podMetricsEndpoints"]:
                assert is_engine(workload) or endpoint["port"] in ports(workload), name_of(item)


def helm_argo_cd_and_flux_keep_what_holds_data_and_nothing_else(objects: Objects) -> None:
    retained = {
        "helm.sh/resource-policy": "keep",
        "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
        "kustomize.toolkit.fluxcd.io/prune": "disabled",
    }
    for item in objects:
        annotations = item["metadata"].get("annotations", {})
        holds_data = item["kind"] in ("Namespace", "PersistentVolume", "PersistentVolumeClaim")
        found = {key: value for key, value in annotations.items() if key in retained}
        assert found == (retained if holds_data else {}), name_of(item)


def every_pod_has_the_annotations_and_every_container_the_variables(objects: Objects, pods: Pods) -> None:
    """No container has a variable twice."""
    for workload in of_kind(objects, *WORKLOADS):
        assert pods.annotations.items() <= template(workload)["metadata"].get("annotations", {}).items()
        for one in containers(workload):
            found = {each["name"]: each.get("value") for each in one.get("env", [])}
            assert pods.environment.items() <= found.items(), (name_of(workload), one["name"])
            assert len(found) == len(one.get("env", [])), (name_of(workload), one["name"])


ALL: tuple[Callable[[Objects], None], ...] = tuple(
    promise
    for promise in list(globals().values())
    if getattr(promise, "__module__", "") == __name__
    and getattr(promise, "__code__", None) is not None
    and promise is not volumes_name_config_maps_and_claims_that_exist
    and promise is not every_pod_has_the_annotations_and_every_container_the_variables
)
