import json
from itertools import pairwise
from typing import Any

import pytest

from rollout.changes.restarts import Restart, notices, restarting, restarts

from ..conftest import made

Object = dict[str, Any]
STARTUP = {"periodSeconds": 10, "failureThreshold": 6}
READY = {"periodSeconds": 5}
ALONE = "CALLS FAIL while the only pod restarts or its node fails"


def container(**parts: Any) -> Object:
    return {"name": "triton", "image": "triton:1", "startupProbe": STARTUP, "readinessProbe": READY, **parts}


def pool(
    replicas: int | None = 1, *, inside: Object | None = None, labels: dict[str, str] | None = None, **spec: Any
) -> Object:
    pod = {"terminationGracePeriodSeconds": 50, "containers": [container()], **(inside or {})}
    template = {"metadata": {"labels": labels or {}}, "spec": pod}
    item = made("StatefulSet", "big-main", spec={"template": template, **spec})
    item["metadata"]["labels"] = {"tidegate.dev/server": "big", "tidegate.dev/pool": "main"}
    if replicas is not None:
        item["spec"]["replicas"] = replicas
    return item


def proxy(replicas: int = 2, image: str = "proxy:1", **spec: Any) -> Object:
    template = {
        "metadata": {"labels": {"tidegate.dev/role": "proxy"}},
        "spec": {"terminationGracePeriodSeconds": 80, "containers": [container(image=image)]},
    }
    return made("Deployment", "inference-proxy", spec={"replicas": replicas, "template": template, **spec})


def routing(loading: str, *models: Object, pool: str = "main") -> Object:
    table = {
        "servers": [{"name": "big", "pools": [{"name": pool, "loading": loading}]}],
        "models": [{"server": "big", "pool": pool, **model} for model in models],
    }
    return made("ConfigMap", "routing", data={"routing.json": json.dumps(table)})


def new_image(item: Object) -> Object:
    copy: Object = json.loads(json.dumps(item))
    copy["spec"]["template"]["spec"]["containers"][0]["image"] = "triton:2"
    return copy


def only(before: list[Object], after: list[Object]) -> Restart:
    (restart,) = restarts(before, after)
    return restart


def test_a_new_image_restarts_its_workload_and_no_other() -> None:
    restart = only([pool(), proxy()], [new_image(pool()), proxy()])
    assert restart.name == "big-main"
    assert restart.because == ("containers[triton].image",)
    assert restarting([restart]) == "1 pool restarts"
    assert restarting([restart, restart]) == "2 pools restart"


def limited(cpu: str, memory: str) -> Object:
    return pool(inside={"containers": [container(resources={"limits": {"cpu": cpu, "memory": memory}})]})


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        (pool(), pool(3), 0),
        (pool(), pool(updateStrategy={"type": "RollingUpdate"}), 0),
        (pool(), pool(minReadySeconds=3), 0),
        (pool(), proxy(), 0),
        (limited("8", "48Gi"), limited("8000m", "49152Mi"), 0),
        (limited("8", "48Gi"), limited("8", "47Gi"), 1),
    ],
    ids=["replicas", "strategy", "ready seconds", "another workload", "another unit", "another amount"],
)
def test_a_change_outside_of_pods_restarts_nothing(before: Object, after: Object, count: int) -> None:
    assert len(restarts([before], [after])) == count


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_table_that_cannot_be_read_is_shown(when: str) -> None:
    broken, whole = (made("ConfigMap", "routing", data={"routing.json": text}) for text in ("{", "{}"))
    pair = ([broken], [whole]) if when == "before" else ([whole], [broken])
    [notice] = notices(*pair)
    assert notice.grave
    assert f"routing.json of {when} the change" in notice.what


def test_a_replaced_workload_loses_all_pods_at_once() -> None:
    restart = only([pool(3, serviceName="a")], [pool(3, serviceName="b")])
    assert restart.replaced
    assert str(restart) == "3 pods, ALL AT ONCE: the object is deleted and created again, because of spec.serviceName"


@pytest.mark.parametrize(
    "scaler",
    [
        made("HorizontalPodAutoscaler", "x", spec={"minReplicas": 1, "maxReplicas": 6}),
        made("ScaledObject", "x", spec={"minReplicaCount": 1, "maxReplicaCount": 6}),
    ],
)
def test_an_autoscaler_shows_its_range_of_pods(scaler: Object) -> None:
    scaler["spec"]["scaleTargetRef"] = {"kind": "StatefulSet", "name": "big-main"}
    restart = only([pool(None), scaler], [new_image(pool(None)), scaler])
    assert str(restart) == "1 to 6 pods, because of containers[triton].image"


# ---- models ----


def test_a_restart_names_the_models_that_are_served_before_and_after() -> None:
    before, after = routing("preload", {"name": "a"}), routing("preload", {"name": "a"}, {"name": "b"})
    assert only([pool(), before], [new_image(pool()), after]).models == ("a",)


def test_models_that_move_or_are_removed_are_reported() -> None:
    before = routing("on-demand", {"name": "a"}, {"name": "b"})
    after = routing("on-demand", {"name": "a"}, pool="large")
    texts = {notice.name: notice.what for notice in notices([before], [after])}
    assert texts == {
        "a": "moves from big/main to big/large: cold until its first request there",
        "b": "IS NO LONGER SERVED",
    }


def test_the_models_behind_a_shared_frontend_are_those_of_its_pools() -> None:
    table = json.loads(routing("preload", {"name": "a"})["data"]["routing.json"])
    table["servers"][0]["pools"][0]["host"] = "big-frontends.ns.svc"
    labels = {"tidegate.dev/server": "big", "tidegate.dev/pool": "frontends"}
    shared = [
        made("ConfigMap", "routing", data={"routing.json": json.dumps(table)}),
        made("Service", "big-frontends") | {"metadata": {"name": "big-frontends", "namespace": "ns", "labels": labels}},
    ]
    restart = only([pool(), *shared], [new_image(pool()), *shared])
    assert restart.models == ("a",)


def test_a_model_moves_once_none_of_its_pools_is_one_that_it_had() -> None:
    def serving(*pools: str) -> Object:
        return routing("preload", *({"name": "a", "pool": pool} for pool in pools))

    steps = [serving("blue"), serving("blue", "green"), serving("green", "blue"), serving("green")]
    for before, after in pairwise(steps):
        assert notices([before], [after]) == []
    [moved] = notices([serving("blue", "green")], [serving("red")])
    assert moved.what == "moves from big/blue, big/green to big/red: cold until a replica there has loaded it"


# ---- without a restart ----


def scaled(least: int, most: int) -> list[Object]:
    bounds = {"minReplicas": least, "maxReplicas": most}
    target = {"scaleTargetRef": {"kind": "StatefulSet", "name": "big-main"}}
    return [pool(None), made("HorizontalPodAutoscaler", "x", spec={**target, **bounds})]


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ([pool(1)], [pool(3)], "1 pod → 3 pods: the number alone restarts no pod"),
        ([pool(3)], [pool(1)], f"3 pods → 1 pod: the last ones end, and their models must be loaded again. {ALONE}"),
        ([pool(3)], [pool(0)], "3 pods → 0 pods: NOTHING SERVES ANY LONGER"),
        ([proxy(3)], [proxy(2)], "3 pods → 2 pods: the last ones end"),
        (
            scaled(2, 6),
            scaled(3, 4),
            "2 to 6 pods → 3 to 4 pods: the last ones end, and their models must be loaded again",
        ),
        (scaled(2, 6), scaled(1, 6), f"2 to 6 pods → 1 to 6 pods: the number alone restarts no pod. {ALONE}"),
    ],
)
def test_more_or_fewer_pods_are_no_restart(before: list[Object], after: list[Object], what: str) -> None:
    assert [notice.what for notice in notices(before, after)] == [what]
