"""The inference proxy: the only entry point to every model of an environment."""

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import lease, proxy_process
from tidegate_contracts.labels import ROLE

from stacks.definition.environment import Domino, Mesh
from stacks.definition.pods import Pods
from stacks.definition.proxy import PROXY, CertificateAuthority
from stacks.definition.servers import ServerTls

from . import pods
from .args import GRACE_SECONDS, ProxyArgs, ServerArgs, TritonServerArgs, external_name
from .exposure import certificate, expose
from .naming import Naming
from .proxy_files import access_table, proxy_settings, routing_table
from .values import (
    checksum,
    each,
    either,
    joined,
    json_text,
    merged,
    none_if_empty,
    of_kind,
    total,
    when,
)

CONFIG_CHECKSUM = "tidegate.dev/settings-checksum"
"""Pod annotation that changes with the settings, so that new settings start new pods."""
SETTINGS = f"{PROXY}-settings"
ROUTING = f"{PROXY}-routing"
_SCRATCH, _DISK = "256Mi", "512Mi"
"""Size of /tmp, and disk for that and the log."""


class Proxy(pulumi.ComponentResource):
    """A Deployment of proxies with its configuration, Service, exposure, budget and autoscaler."""

    def __init__(
        self,
        name: str,
        args: ProxyArgs,
        naming: Naming,
        servers: Sequence[ServerArgs],
        every_pod: Pods,
        domino: Domino | None = None,
        mesh: Mesh | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tidegate:components:Proxy", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        labels = naming.labels(PROXY)
        variables = proxy_settings(args, naming, domino)
        settings = k8s.core.v1.ConfigMap(
            f"{name}-settings", metadata=naming.metadata(SETTINGS, labels), data=variables, opts=child
        )
        routing = k8s.core.v1.ConfigMap(
            f"{name}-routing",
            metadata=naming.metadata(ROUTING, labels),
            data={
                name + ending: text
                for name, table in (
                    (proxy_process.ROUTING_FILE, routing_table(naming, servers)),
                    (proxy_process.ACCESS_FILE, access_table(args)),
                )
                for ending, text in (("", json_text(table)), (proxy_process.CHECKSUM, checksum(table)))
            },
            opts=child,
        )
        k8s.apps.v1.Deployment(
            f"{name}-deployment",
            metadata=naming.metadata(PROXY, labels),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                # An autoscaler sets the number if there is one.
                replicas=either(args.autoscaling, lambda _: None, lambda: args.replicas),
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=naming.proxy_selector),
                strategy=pods.new_before_old(),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(
                        labels=merged(
                            labels, {ROLE: "proxy"}, when(domino, lambda _: _domino_labels(args)), _mesh_labels(mesh)
                        ),
                        annotations=merged(every_pod.annotations, {CONFIG_CHECKSUM: checksum(variables)}),
                    ),
                    spec=_pod(args, naming, servers, every_pod),
                ),
            ),
            # Pods read the settings only when they start.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[settings, routing]),
        )
        expose(name, args, naming, child)
        when(args.tls, lambda tls: certificate(f"{name}-certificate", tls, args.exposure, naming, child))
        pods.disruption_budget(f"{name}-budget", naming.metadata(PROXY, labels), naming.proxy_selector, 1, child)
        when(
            args.autoscaling,
            lambda scaling: pods.cpu_autoscaler(
                f"{name}-autoscaler", "Deployment", naming.metadata(PROXY, labels), scaling, child
            ),
        )
        self.register_outputs({})


def _domino_labels(args: ProxyArgs) -> dict[str, Any] | None:
    return merged(
        {"nucleus-client": "true"},
        when(none_if_empty(args.auth.oidc), lambda _: {"keycloak-client": "true"}),
    )


def _mesh_labels(mesh: Mesh | None) -> dict[str, Any] | None:
    return when(mesh, lambda _: {"sidecar.istio.io/inject": "true", "security.istio.io/tlsMode": "istio"})


def _pod(args: ProxyArgs, naming: Naming, servers: Sequence[ServerArgs], every_pod: Pods) -> k8s.core.v1.PodSpecArgs:
    upstream_cas = each(
        servers,
        lambda server: of_kind(
            server,
            TritonServerArgs,
            lambda server: when(server.triton.grpc_tls, lambda tls: _upstream_ca(server, tls)),
        ),
    )
    return pods.pod_spec(
        PROXY,
        node_selector=none_if_empty(args.node_selector),
        tolerations=each(args.tolerations, pods.toleration),
        topology_spread_constraints=pods.spread_over_nodes(naming.proxy_selector),
        priority_class_name=args.priority_class,
        # The pause before SIGTERM, then the time of requests in flight, then a margin.
        termination_grace_period_seconds=total(args.timeouts.drain_seconds, GRACE_SECONDS),
        containers=[_container(args, upstream_cas, every_pod)],
        volumes=joined(
            [pods.config_volume("routing", ROUTING), pods.scratch_volume("tmp", _SCRATCH), _lease_token()],
            when(args.tls, lambda tls: [pods.secret_volume("tls", tls.secret)]),
            when(args.auth.api_keys, lambda keys: [pods.secret_volume("api-keys", keys.secret)]),
            when(each(args.auth.authorities, _authority), lambda found: [pods.projected_volume("authorities", found)]),
            when(upstream_cas, lambda sources: [pods.projected_volume("upstream-ca", sources)]),
        ),
    )


def _container(
    args: ProxyArgs, upstream_cas: list[k8s.core.v1.VolumeProjectionArgs] | None, every_pod: Pods
) -> k8s.core.v1.ContainerArgs:
    ports = {"http": proxy_process.HTTP_PORT, "grpc": proxy_process.GRPC_PORT, "admin": proxy_process.ADMIN_PORT}
    return pods.container(
        "proxy",
        args.image,
        every_pod,
        ports,
        command=["python", "-m", proxy_process.MODULE],
        env_from=[k8s.core.v1.EnvFromSourceArgs(config_map_ref=k8s.core.v1.ConfigMapEnvSourceArgs(name=SETTINGS))],
        resources=pods.container_resources(args.resources, _DISK),
        startup_probe=pods.http_probe(proxy_process.LIVE_PATH, "admin", 1, failures=60),
        readiness_probe=pods.http_probe(proxy_process.READY_PATH, "admin", 2, failures=2),
        liveness_probe=pods.http_probe(proxy_process.LIVE_PATH, "admin", 10, failures=6),
        lifecycle=pods.pre_stop(),
        volume_mounts=joined(
            [
                pods.mount("routing", proxy_process.ROUTING_ROOT),
                pods.mount("tmp", "/tmp", read_only=False),
                pods.mount("lease-token", proxy_process.LEASE_TOKEN_ROOT),
            ],
            when(args.tls, lambda _: [pods.mount("tls", proxy_process.TLS_ROOT)]),
            when(args.auth.api_keys, lambda _: [pods.mount("api-keys", proxy_process.API_KEYS_ROOT)]),
            when(
                none_if_empty(args.auth.authorities),
                lambda _: [pods.mount("authorities", proxy_process.AUTHORITIES_ROOT)],
            ),
            when(upstream_cas, lambda _: [pods.mount("upstream-ca", proxy_process.UPSTREAM_CA_ROOT)]),
        ),
    )


def _lease_token() -> k8s.core.v1.VolumeArgs:
    """Return the volume with the token that authenticates a proxy to eviction policies."""
    token = k8s.core.v1.ServiceAccountTokenProjectionArgs(
        audience=lease.AUDIENCE, expiration_seconds=3600, path=proxy_process.LEASE_TOKEN_FILE
    )
    source = k8s.core.v1.VolumeProjectionArgs(service_account_token=token)
    return pods.projected_volume("lease-token", [source])


def _upstream_ca(server: ServerArgs, tls: ServerTls) -> k8s.core.v1.VolumeProjectionArgs:
    file = external_name(server, proxy_process.upstream_ca_file)
    return _of_secret(tls.secret, [k8s.core.v1.KeyToPathArgs(key="ca.crt", path=file)])


def _authority(authority: CertificateAuthority) -> k8s.core.v1.VolumeProjectionArgs:
    items = [k8s.core.v1.KeyToPathArgs(key=authority.key, path=proxy_process.authority_file(authority.name))]
    return either(
        authority.config_map,
        lambda name: k8s.core.v1.VolumeProjectionArgs(
            config_map=k8s.core.v1.ConfigMapProjectionArgs(name=name, items=items)
        ),
        lambda: _of_secret(authority.secret, items),
    )


def _of_secret(name: str | None, items: list[k8s.core.v1.KeyToPathArgs]) -> k8s.core.v1.VolumeProjectionArgs:
    return k8s.core.v1.VolumeProjectionArgs(secret=k8s.core.v1.SecretProjectionArgs(name=name, items=items))
