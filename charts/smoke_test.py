"""What `helm test` installs: a pod that asks the proxy and, through it, each server; and the way through the network.

The proxy's probes are open to Prometheus alone, and every pod's way out is closed, so the pod needs a way through both.
"""

from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import proxy_process

from components import EnvironmentArgs, pods
from components.args import called
from components.place import PROXY_HEADLESS, Place
from components.values import each, joined, merged, none_if_empty, when, whole
from stacks.definition.proxy import PROXY

NAME = "helm-test"
_PROGRAM = Path(__file__).parent / "smoke_test_program.py"
# What passed is taken away; a pod that failed stays, with its log, until the next test.
_HOOK = {"helm.sh/hook": "test", "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"}
_POLICY_HOOK = {**_HOOK, "helm.sh/hook-weight": "-1"}
# Without `--logs` too, Helm shows what a pod that failed has said.
_POD_HOOK = {**_HOOK, "helm.sh/hook-output-log-policy": "hook-failed"}


class SmokeTest(pulumi.ComponentResource):
    """A pod that asks the proxy and each server whether they are ready, and the policy that lets it.

    One policy for both ends, with the pod's name: `helm test --logs` asks for a pod by the name of every hook that it
    has run, whatever its kind, and fails when there is none.
    """

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the pod and its policies."""
        super().__init__("tidegate:charts:SmokeTest", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        place = Place(args.name, args.namespace.name)
        # No sidecar of a mesh: it would keep the pod from ending.
        labels = place.labels(NAME, {"sidecar.istio.io/inject": "false"})
        own = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": place.environment}
        probes = [k8s.networking.v1.NetworkPolicyPortArgs(port=proxy_process.ADMIN_PORT, protocol="TCP")]
        both = k8s.meta.v1.LabelSelectorRequirementArgs(
            key="app.kubernetes.io/name", operator="In", values=[NAME, place.proxy_selector["app.kubernetes.io/name"]]
        )
        k8s.networking.v1.NetworkPolicy(
            name,
            metadata=place.metadata(NAME, labels, _POLICY_HOOK),
            spec=k8s.networking.v1.NetworkPolicySpecArgs(
                pod_selector=k8s.meta.v1.LabelSelectorArgs(
                    match_labels={"app.kubernetes.io/instance": place.environment}, match_expressions=[both]
                ),
                policy_types=["Ingress", "Egress"],
                ingress=[k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=[_peer(own)], ports=probes)],
                egress=[k8s.networking.v1.NetworkPolicyEgressRuleArgs(to=[_peer(place.proxy_selector)], ports=probes)],
            ),
            opts=child,
        )
        metadata = place.metadata(NAME, labels, merged(args.pods.annotations, _POD_HOOK))
        k8s.core.v1.Pod(name, metadata=metadata, spec=_pod(args, place), opts=child)
        self.register_outputs({})


def _pod(args: EnvironmentArgs, place: Place) -> k8s.core.v1.PodSpecArgs:
    host, port = f"{PROXY_HEADLESS}.{place.namespace}.svc", str(proxy_process.ADMIN_PORT)
    return pods.pod_spec(
        PROXY,  # it knows the secrets to pull images with
        restart_policy="Never",
        node_selector=none_if_empty(args.proxy.node_selector),
        tolerations=each(args.proxy.tolerations, pods.toleration),
        affinity=when(args.proxy.affinity, whole),
        containers=[
            pods.container(
                "ask",
                args.proxy.image,
                args.pods,
                command=["python", "-c", _PROGRAM.read_text("utf-8")],
                args=joined(
                    [host, port, proxy_process.READY_PATH],
                    each(args.servers, lambda server: called(server, proxy_process.server_ready_path)),
                ),
                resources=k8s.core.v1.ResourceRequirementsArgs(
                    requests={"cpu": "10m", "memory": "64Mi"}, limits={"memory": "64Mi"}
                ),
            )
        ],
    )


def _peer(labels: dict[str, str]) -> k8s.networking.v1.NetworkPolicyPeerArgs:
    return k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels))
