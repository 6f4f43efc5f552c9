"""Every alert fires when it should, names what and where, stays quiet before, and ends. promtool runs the rules."""

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from components.alert_rules import alert_rules
from components.naming import Naming
from lab.local_plane.process import CannotBeHadError
from lab.local_plane.prometheus import installed
from stacks.definition.environment import RUNBOOKS, Objectives

NAMESPACE = "inference-prod"
POOL = {"server": "main", "pool": "small"}
REPLICA = POOL | {"replica": "10.0.0.7:8000"}
POD = {"pod": "triton-0"}
RESNET = POD | {"model": "resnet"}
ENGINE = {"pod": "chat-blue-0"}
STALLED = "has 3 running requests but has not processed a token for five minutes."
ISSUER = "https://id.example"
SHARE = "of calls in inference-prod"
AGAIN = "were refused as busy in the last hour"
QUARANTINED = "Pod triton-0 has not retried model resnet for"
FOR_REASON = ": too many loads failed. Run `tidegate why`."
FOR_MEMORY = "in six hours because of leaked memory."
LAST_GOOD = "and keeps the last good one. Its log has the reason."
CERTIFICATE = "The proxy's certificate in inference-prod expires in"
DAY = 86_400


@dataclass(frozen=True)
class Case:
    """Series by the minute, in promtool's notation, and the minutes at which an alert fires or is quiet."""

    alert: str
    about: str
    series: dict[str, str]
    at: tuple[int, ...] = ()  # Minutes at which it fires.
    severity: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    summary: str = ""  # MINUTE stands for the minute.
    quiet: tuple[int, ...] = ()


REQUESTS = "tidegate_proxy_requests_total"
BUSY = "tidegate_proxy_model_problems_total"


def of(metric: str, **labels: str) -> str:
    return metric + "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


REQUESTS_WELL = of(REQUESTS, protocol="http", status="200")


def calls(wrong: int, protocol: str, status: str, begins: int = 60, lasting: int = 60) -> dict[str, str]:
    """Return a thousand calls a minute. From the minute `begins` on, `wrong` more a minute fail."""
    values = f"_x{begins} 0+{wrong}x{lasting} {lasting * wrong}x3000"
    return {REQUESTS_WELL: "0+1000x3000", of(REQUESTS, model="resnet", protocol=protocol, status=status): values}


def until(value: str, minute: int = 20, before: str = "0", begins: int = 5) -> str:
    return f"{before}x{begins} {value}x{minute - begins - 1} {before}x200"


PODS = ("proxy-a", "proxy-b")
READY, BREAKER, SILENT = (f"tidegate_proxy_{each}" for each in ("pool_ready", "breaker", "policy_silent"))
POLICY = "tidegate_eviction_"
ALL_READY = {of(READY, **POOL, pod=pod): "1x200" for pod in PODS}
NONE_READY = {of(READY, **POOL, pod=pod): until("0", before="1") for pod in PODS}
OPEN = {
    of(BREAKER, **REPLICA, state=state, pod="proxy-a"): f"0x5 {values} 0x200"
    for state, values in {"open": "1 1 0 1 1 0 1 1 0 1 1 0 1 1", "half-open": "0 0 1 0 0 1 0 0 1 0 0 1 0 0"}.items()
}
LOADED = {of(f"{POLICY}bytes", **POD, kind="capacity"): "10000000000x200"}
CASES = [
    Case("TidegateCallsFail", "fast, without a ticket", calls(100, "http", "502"), (72,), "critical", {},
         f"1.961% {SHARE} failed in the last hour, most of them for model resnet (status 502).",
         quiet=(60, 66, 126, 140, 200)),
    Case("TidegateCallsFail", "to its end", calls(100, "http", "502"), (122,), "critical", {},
         f"8.815% {SHARE} failed in the last hour, most of them for model resnet (status 502)."),
    Case("TidegateCallsFail", "at once where nothing is answered", calls(9000, "http", "502"), (62,), "critical", {},
         f"23.08% {SHARE} failed in the last hour, most of them for model resnet (status 502).", quiet=(60, 61)),
    Case("TidegateCallsFail", "for hours, somewhat", calls(10, "http", "502", lasting=400), (400,), "critical", {},
         f"0.9901% {SHARE} failed in the last hour, most of them for model resnet (status 502).", quiet=(100, 470)),
    Case("TidegateCallsFail", "over gRPC, slowly", calls(5, "grpc", "13", lasting=440), (500,), "info", {},
         f"0.4378% {SHARE} failed in the last day, most of them for model resnet (status 13).", quiet=(60, 300, 640)),
    Case("TidegateCallsFail", "not for calls that are refused as busy", calls(100, "http", "503"), quiet=(80, 115)),
    Case("TidegateCallsFail", "not for some that are the first of many thousands",
         {REQUESTS_WELL: "0+6000x800", of(REQUESTS, protocol="http", status="502"): "_x300 0 100 200x400"},
         quiet=(302, 310, 330, 700)),
    Case("TidegateCallsFail", "not for three calls of six",
         {REQUESTS_WELL: "0x60 0 1 2 3x700", of(REQUESTS, protocol="http", status="500"): "0x60 0 1 2 3x700"},
         quiet=(65, 100, 430, 500)),
    *(
        Case("TidegateCallsBusy", f"over {protocol}",
             calls(200, protocol, status)
             | {of("tidegate_proxy_model_problems_total", model=model, type="busy", reason=reason): values for model,
             reason, values in (("resnet", "no-room", "0x60 0+150x60"), ("bert", "queued", "0x60 0+50x60"))}, (100,),
             "critical", {}, f"11.76% {SHARE} {AGAIN}, most of them for model resnet (reason no-room).",
             quiet=(60, 126, 200))
        for protocol, status in (("http", "503"), ("grpc", "14"))
    ),
    Case("TidegateCallsBusy", "where they are of no model", calls(200, "http", "503"), (100,), "critical", {},
         f"11.76% {SHARE} {AGAIN}."),
    Case("TidegateModelStarved", "though the calls of all other models are answered",
         {REQUESTS_WELL: "0+100000x200",
         of(REQUESTS, server="main", model="bert", protocol="http", status="503"): "0x20 0+10x30 300x200",
         of(BUSY, server="main", model="bert", type="busy", reason="no-room"): "0x20 0+10x30 300x200"}, (32, 50),
         "critical", {"server": "main", "model": "bert"},
         "Model main/bert refused 100 calls in ten minutes for lack of memory. At most one in ten calls succeeded.",
         quiet=(20, 22, 62)),
    Case("TidegateModelStarved", "not if one call in five is answered, nor if the pool has no replica",
         {of(REQUESTS, server="main", model="bert", protocol="grpc", status="0"): "0+2x200",
         of(BUSY, server="main", model="bert", type="busy", reason="no-room"): "0+8x200",
         of(BUSY, server="main", model="resnet", type="busy", reason="no-replica"): "0+100x200"}, quiet=(20, 100)),
    Case("TidegateCallsSlow", "",
         {REQUESTS_WELL: "0+1000x700", of("tidegate_proxy_request_seconds_count", model="resnet"): "0+1000x700",
         of("tidegate_proxy_request_seconds_bucket", model="resnet",
         le="2.5"): "0+1000x60 60000+100x60 66000+1000x600"}, (115,), "critical", {},
         f"82.67% {SHARE} took more than 2.5 s in the last hour, most of them for model resnet.", quiet=(60, 130, 200)),
    Case("TidegatePoolGone", "", NONE_READY, (10,), "critical", POOL,
         "Pool main/small has no usable replica: proxies cannot call its models.", quiet=(4, 5, 21)),
    Case("TidegatePoolGone", "not if only one proxy reports it",
         ALL_READY | {of(READY, **POOL, pod="proxy-a"): "0x200"}, quiet=(10, 100)),
    Case("TidegateBreakerOpen", "", ALL_READY | OPEN, (10,), "warning", REPLICA,
         "Replica 10.0.0.7:8000 of main/small is ready in Kubernetes but does not answer proxies.", quiet=(4, 6, 21)),
    Case("TidegateBreakerOpen", "not where its pool is gone", NONE_READY | OPEN, quiet=(10, 15)),
    Case("TidegatePolicySilent", "", ALL_READY | {**{of(SILENT, **REPLICA, pod=pod): until("1") for pod in PODS}},
         (10,), "critical", REPLICA,
         "The eviction policy of replica 10.0.0.7:8000 of main/small does not answer proxies: it loads no models.",
         quiet=(4, 6, 21)),
    Case("TidegatePolicySilent", "not where its replica is gone",
         ALL_READY | OPEN | {**{of(SILENT, **REPLICA, pod=pod): until("1") for pod in PODS}}, quiet=(10, 15)),
    Case("TidegatePolicySilent", "not if only one proxy reports it",
         ALL_READY
         | {of(SILENT, **REPLICA, pod=pod): value for pod, value in zip(PODS, ("1x200", "0x200"), strict=True)},
         quiet=(10, 100)),
    Case("TidegateRequestsFail", "",
         {of("nv_inference_request_failure", **RESNET): "0x10 0+10x40 400x200",
         of("nv_inference_request_success", **RESNET): "0+60x300"}, (30,), "warning", RESNET,
         "More than 5 % of requests to model resnet fail in Triton of pod triton-0.", quiet=(10, 15, 70)),
    Case("TidegateQueueGrows", "",
         {of("nv_inference_queue_duration_us", **RESNET): "0x10 0+60000000x40 2400000000x200",
         of("nv_inference_request_success", **RESNET): "0+60x300"}, (30,), "warning", RESNET,
         "Requests to model resnet wait 1s in the queue of pod triton-0.", quiet=(10, 15, 70)),
    Case("TidegateEngineNotReady", "", {of("tidegate_engine_up", **ENGINE): until("0", minute=40, before="1")}, (25,),
         "warning", ENGINE,
         "The engine in pod chat-blue-0 has not answered for 15 minutes: it still loads, or it hangs.",
         quiet=(4, 15, 45)),
    *(
        Case("TidegateEngineStalled", about,
             {of(running, **ENGINE): "3x300"} | {of(name, **ENGINE): "0+50x30 1500x30 1500+50x200" for name in tokens},
             (45,), "critical", ENGINE, f"Pod chat-blue-0 {STALLED}", quiet=(20, 32, 75))
        for about, (running, *tokens) in {
            "vllm": ("vllm:num_requests_running", "vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
            "dynamo": (
                "dynamo_frontend_inflight_requests",
                "dynamo_frontend_input_sequence_tokens_sum",
                "dynamo_frontend_output_tokens_total",
            ),
        }.items()
    ),
    *(
        Case("TidegateEngineStalled", about,
             {of("vllm:num_requests_running", **ENGINE): running}
             | {of(f"vllm:{name}_tokens_total", **ENGINE): values for name,
             values in (("prompt", prompt), ("generation", "0x200"))}, quiet=(20, 60, 150))
        for about, running, prompt in (
            ("not where it makes vectors of what it reads", "3x200", "0+50x200"),
            ("not where nothing runs", "0x200", "0x200"),
            ("not where something runs now and then", "3 0 3 0 3 0x200", "0x200"),
        )
    ),
    *(
        Case("TidegateEngineQueueGrows", about,
             {of(running, **ENGINE): "4x200", of(waiting, **ENGINE): until("9", minute=30)}, (20,), "warning", ENGINE,
             "9 requests wait for the engine in pod chat-blue-0, more than it runs.", quiet=(4, 14, 35))
        for about, running, waiting in (
            ("vllm", "vllm:num_requests_running", "vllm:num_requests_waiting"),
            ("sglang", "sglang:num_running_reqs", "sglang:num_queue_reqs"),
        )
    ),
    Case("TidegateLoadFailed", "",
         {of("tidegate_proxy_load_failed_timestamp_seconds", **REPLICA, model="resnet", version="3",
         pod=pod): "0x20 stale" for pod in PODS}, (1, 10), "critical", POOL | {"model": "resnet", "version": "3"},
         "Version 3 of model resnet has failed to load in main/small for MINUTEm 0s. The proxy's log has the reason.",
         quiet=(0, 22)),
    Case("TidegateOnDemandLoadFailed", "", {of(f"{POLICY}model_load_failures_total", **RESNET): "0x10 1x200"}, (15,),
         "warning", RESNET, "1 loads of model resnet failed in pod triton-0 in the last 15 minutes. "
         "The eviction policy's log has the reason.", quiet=(10, 40)),
    Case("TidegateOnDemandLoadFailed", "not if the policy exports no metrics any more",
         {of(f"{POLICY}model_load_failures_total", **RESNET): "0x10 1 2 3x3 stale _x10 3x200",
         of(f"{POLICY}model_quarantined_timestamp_seconds", **RESNET): "_x12 720x2 stale _x10 720x200"},
         quiet=(14, 17, 20, 24, 27)),
    Case("TidegateOnDemandLoadFailed", "not if it is quarantined",
         {of(f"{POLICY}model_load_failures_total", **RESNET): "0x10 1 2 3x200",
         of(f"{POLICY}model_quarantined_timestamp_seconds", **RESNET): "_x12 720x200"}, quiet=(14, 20)),
    Case("TidegateModelQuarantined", "",
         {of(f"{POLICY}model_quarantined_timestamp_seconds", **RESNET): "0x20 stale",
         of(f"{POLICY}models", **POD, state="quarantined"): "1x20 0x200"}, (10,), "warning", RESNET,
         f"{QUARANTINED} 10m 0s{FOR_REASON}", quiet=(0, 22)),
    Case("TidegateModelQuarantined", "also while its policy hangs, and no longer than the pod is there",
         {of(f"{POLICY}model_quarantined_timestamp_seconds", **RESNET): "0x20 stale _x100",
         of(f"{POLICY}leases", **POD): "1x20 stale _x100",
         of("up", **POD, instance="10.0.0.7:8788"): "1x20 0x20 stale"}, (30,), "warning", RESNET,
         f"{QUARANTINED} 30m 0s{FOR_REASON}", quiet=(43,)),
    Case("TidegateModelQuarantined", "not once it is out, though its server does not answer",
         {of(f"{POLICY}model_quarantined_timestamp_seconds", **RESNET): "0x20 stale",
         of(f"{POLICY}leases", **POD): "1x100", of("up", **POD, instance="10.0.0.7:8002"): "0x100"}, quiet=(22, 40)),
    Case("TidegateModelQuarantined", "of models that have no name in metrics",
         {of(f"{POLICY}models", **POD, state="quarantined"): until("2")}, (10,), "warning", POD,
         f"Pod triton-0 does not retry 2 models{FOR_REASON}", quiet=(4, 21)),
    Case("TidegateThrash", "",
         {of(f"{POLICY}load_seconds_sum", **POD): "0+45x60 2700x200",
         of(f"{POLICY}evictions_total", **POD, reason="room"): "0+1x60 60x200"}, (50,), "warning", POD,
         "Pod triton-0 spends 75% of the time loading models, and evicts others for them.", quiet=(10, 120)),
    Case("TidegateThrash", "not if models are loaded into free memory",
         {of(f"{POLICY}load_seconds_sum", **POD): "0+45x60",
         of(f"{POLICY}evictions_total", **POD, reason="room"): "0x60"}, quiet=(50,)),
    Case("TidegateMemoryLeaked", "", LOADED | {of(f"{POLICY}bytes", **POD, kind="leaked"): until("2000000000", 60)},
         (30,), "warning", POD | {"kind": "leaked"},
         "Unloaded models did not release 1.863GiB of memory in pod triton-0.", quiet=(5, 15, 62)),
    Case("TidegateMemoryLeaked", "not for a twentieth of the slice",
         LOADED | {of(f"{POLICY}bytes", **POD, kind="leaked"): "500000000x200"}, quiet=(60,)),
    Case("TidegateServerRecycled", "", {of(f"{POLICY}recycles_total", **POD): "0x10 1 1 2 2 2x20 3 3x600"}, (60,),
         "warning", POD, f"The eviction policy restarted the server in pod triton-0 3 times {FOR_MEMORY}",
         quiet=(12, 30, 500)),
    Case("TidegateMemoryUnseen", "", {of(f"{POLICY}memory_source", **POD, source="none"): until("1", 60)}, (30,),
         "warning", POD | {"source": "none"},
         "Pod triton-0 cannot measure its GPU memory: its eviction policy relies on declared sizes.", quiet=(15, 62)),
    Case("TidegateMemoryUnseen", "not where its server hangs",
         {of(f"{POLICY}memory_source", **POD, source="none"): until("1", 60),
         of("up", **POD, instance="10.0.0.7:8002"): until("0", 60, before="1")}, quiet=(30, 59, 62)),
    Case("TidegateSlicesShort", "", {of("kube_pod_status_unschedulable", **POD): until("1", 60)}, (30,), "warning", POD,
         "Kubernetes finds no node for pod triton-0: GPU slices or other resources are missing.", quiet=(12, 62)),
    Case("TidegateProxiesGone", "", {of("tidegate_proxy_in_flight", pod="proxy-a"): "0x10 stale _x10 0x20"}, (18,),
         "critical", {},
         "Prometheus has no metrics from proxies in inference-prod: no proxy runs, or Prometheus reads none.",
         quiet=(10, 12, 24)),
    Case("TidegateTargetDown", "", {of("up", **POD, instance="10.0.0.7:8002"): until("0", before="1")}, (15,),
         "warning", POD | {"instance": "10.0.0.7:8002"},
         "Prometheus cannot read metrics from pod triton-0 (10.0.0.7:8002).", quiet=(4, 8, 21)),
    *(
        Case("TidegateTargetDown", about,
             {of("up", pod="main-small-0", instance="10.0.0.7:8002"): until("0", before="1")} | why, quiet=(11, 15, 21))
        for about, why in {
            "not where its pool is gone": NONE_READY,
            "not where it gives proxies no answer": ALL_READY | OPEN,
            "not where its policy is silent": {of(SILENT, **REPLICA, pod=pod): until("1") for pod in PODS},
        }.items()
    ),
    *(
        Case("TidegateTargetDown", about,
             NONE_READY | {of(SILENT, **REPLICA, pod="proxy-a"): until("1")}
             | {of("up", pod=pod, instance=f"{host}:8002"): until("0", before="1")}, (15,), "warning",
             {"pod": pod, "instance": f"{host}:8002"}, f"Prometheus cannot read metrics from pod {pod} ({host}:8002).")
        for about, pod, host in (
            ("of another pool than the one that is gone", "main-large-0", "10.0.0.7"),
            ("of a proxy", "inference-proxy-7f9c-x2", "10.0.0.7"),
        )
    ),
    Case("TidegateTargetDown", "of another replica than the one that is silent",
         ALL_READY | {of(SILENT, **REPLICA, pod=pod): until("1") for pod in PODS}
         | {of("up", pod="main-small-1", instance="10.0.0.8:8002"): until("0", before="1")}, (15,), "warning",
         {"pod": "main-small-1", "instance": "10.0.0.8:8002"},
         "Prometheus cannot read metrics from pod main-small-1 (10.0.0.8:8002)."),
    Case("TidegateTableRefused", "of a proxy",
         {of("tidegate_proxy_config_good", pod="proxy-a", file="access"): until("0", before="1")}, (15,), "warning",
         {"pod": "proxy-a", "file": "access"}, f"Pod proxy-a refuses its access file {LAST_GOOD}", quiet=(4, 8, 21)),
    Case("TidegateTableRefused", "of an eviction policy", {of(f"{POLICY}settings_good", **POD): until("0", before="1")},
         (15,), "warning", POD, f"Pod triton-0 refuses its settings file {LAST_GOOD}", quiet=(4, 8, 21)),
    Case("TidegateDrift", "",
         {of("tidegate_proxy_config_edited", pod="proxy-a", file="routing"): until("1", before="0")}, (15,), "warning",
         {"pod": "proxy-a", "file": "routing"},
         "Pod proxy-a uses another routing table than the one that was rolled out.", quiet=(4, 8, 21)),
    Case("TidegateProxyFull", "",
         {of("tidegate_proxy_held_bytes", pod="proxy-a", of="strangers"): until("95"),
         of("tidegate_proxy_held_limit_bytes", pod="proxy-a", of="strangers"): "100x200"}, (15,), "warning",
         {"pod": "proxy-a", "of": "strangers"},
         "The buffers of pod proxy-a for strangers are 95% full: the proxy will soon refuse calls.", quiet=(4, 8, 21)),
    Case("TidegateCertificateExpires", "first as a warning",
         {of("tidegate_proxy_certificate_expires_timestamp_seconds",
         pod="proxy-a"): f"{14 * DAY + 600}x20 {90 * DAY}x20"}, (18,), "info", {}, f"{CERTIFICATE} 13d 23h 52m 0s.",
         quiet=(9, 12, 22)),
    Case("TidegateCertificateExpires", "and then as critical",
         {of("tidegate_proxy_certificate_expires_timestamp_seconds",
         pod="proxy-a"): f"{2 * DAY + 600}x20 {90 * DAY}x20"}, (18,), "critical", {}, f"{CERTIFICATE} 1d 23h 52m 0s.",
         quiet=(22,)),
    Case("TidegateIssuerUnanswering", "",
         {of("tidegate_proxy_issuer_keys_trusted_seconds", pod="proxy-a", issuer=ISSUER): "14400-60x90 14400x90"},
         (80,), "critical", {"issuer": ISSUER},
         f"Issuer {ISSUER} returns no keys: proxies trust its tokens for another 2h 40m 0s.", quiet=(50, 62, 92)),
]  # fmt: skip


def expected(case: Case, minute: int) -> list[dict[str, Any]]:
    labels = {"severity": case.severity, "namespace": NAMESPACE, **case.labels}
    annotations = {
        "summary": case.summary.replace("MINUTE", str(minute)),
        "runbook_url": f"{RUNBOOKS}#{case.alert.lower()}",
    }
    return [{"exp_labels": labels, "exp_annotations": annotations}] if minute in case.at else []


def series_in(namespace: str, series: dict[str, str]) -> list[dict[str, str]]:
    def named(one: str) -> str:
        return re.sub(r"\{", f'{{namespace="{namespace}", ', one, count=1).replace(", }", "}")

    return [{"series": named(one), "values": values} for one, values in series.items()]


@cache
def rules() -> list[dict[str, Any]]:
    return alert_rules(Naming("prod", NAMESPACE), Objectives())


def rules_of(alert: str) -> list[dict[str, Any]]:
    """Return the rules of an alert, and the recording rules that they need: promtool takes seconds for all rules."""
    needed = [rule for rule in rules() if rule.get("alert") == alert]
    for rule in reversed(rules()):
        if "record" in rule and any(rule["record"] in each["expr"] for each in needed):
            needed.append(rule)
    return [rule for rule in rules() if rule in needed]


def promtool(*arguments: str | Path) -> str:
    """Return the output of promtool if it finds a fault, else an empty text."""
    try:
        package = installed()
    except CannotBeHadError as error:
        pytest.fail(f"NOT RUN: {error}")
    command = [package.path("promtool"), *arguments]
    ran = subprocess.run(
        command, env=os.environ | package.environment(), capture_output=True, text=True, timeout=600, check=False
    )
    return "" if ran.returncode == 0 and "FAILED" not in ran.stderr else ran.stdout + ran.stderr


def promtool_test(folder: Path, *series: dict[str, str], rules: Path | None = None, **tests: Any) -> str:
    """Return the faults that promtool finds: with a value a minute for each series, and `tests` in its own format."""
    test = {"interval": "1m", "input_series": series, **tests}
    files = [str(rules)] if rules else []
    file = folder / "test.json"
    file.write_text(json.dumps({"rule_files": files, "evaluation_interval": "1m", "tests": [test]}))
    return promtool("test", "rules", file)


def written(folder: Path, rules: list[dict[str, Any]]) -> Path:
    file = folder / "rules.json"  # JSON is YAML.
    file.write_text(json.dumps({"groups": [{"name": "tidegate", "rules": rules}]}))
    return file


def test_promtool_finds_nothing_wrong_with_the_rules(tmp_path: Path) -> None:
    assert not promtool("check", "rules", written(tmp_path, rules()))


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.alert} {case.about}".strip()) for case in CASES])
def test_an_alert_fires_in_its_case_names_its_subject_and_place_and_ends(case: Case, tmp_path: Path) -> None:
    series = [*series_in(NAMESPACE, case.series), *series_in("elsewhere", case.series)]
    wanted = [
        {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": expected(case, minute)}
        for minute in sorted({*case.at, *case.quiet})
    ]
    assert not promtool_test(tmp_path, *series, rules=written(tmp_path, rules_of(case.alert)), alert_rule_test=wanted)


def test_a_version_answers_since_it_first_did_and_not_since_it_was_loaded_again(tmp_path: Path) -> None:
    since = "tidegate:version_answers:since_timestamp_seconds"
    series = {
        of("nv_inference_request_success", model="resnet", version="1"): "5x10 stale _x60 5x10 stale _x1500 5x100",
        of("nv_inference_request_success", model="resnet", version="2"): "0x30 1x2000",
        of("nv_inference_request_success", model="tidegate_memory", version="1"): "5x2000",
    }
    wanted = {5: {"1": 0}, 40: {"2": 31}, 75: {"1": 0, "2": 31}, 1600: {"1": 1584, "2": 31}}
    samples = [
        {
            "expr": since,
            "eval_time": f"{minute}m",
            "exp_samples": [
                {"labels": of(since, namespace=NAMESPACE, model="resnet", version=version), "value": 60 * at}
                for version, at in found.items()
            ],
        }
        for minute, found in wanted.items()
    ]
    alone = written(tmp_path, [rule for rule in rules() if rule.get("record") == since])
    assert not promtool_test(tmp_path, *series_in(NAMESPACE, series), rules=alone, promql_expr_test=samples)


def test_every_alert_has_a_case() -> None:
    named = {rule["alert"] for rule in rules() if "alert" in rule}
    assert {case.alert for case in CASES} == named
