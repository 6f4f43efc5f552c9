"""Rules of egress: every address that a definition names needs an entry in `network.reach`."""

import ipaddress
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from tidegate_contracts.object_url import parsed

from ..definition.environment import Reach
from ..definition.pools import OnDemand
from ..definition.proxy import PROXY
from ..definition.servers import AwsIdentity, Server
from ..load import PathInTree
from ..problems import Problem, Severity
from ..stack import Definition, Stack
from .references import API_SERVER_ENDPOINTS, servers_that_reach_something_exist
from .rule import definition_rule, stack_rule

_SERVICE = re.compile(r"[^.]+\.(?P<namespace>[^.]+)(\.svc(\.cluster\.local)?)?")
_POD_IDENTITY = "169.254.170.23/32", "fd00:ec2::23/128"
"""Addresses of the EKS Pod Identity Agent: Amazon EKS User Guide, "Set up the Amazon EKS Pod Identity Agent"."""
_STORES = {"s3": "https://s3.amazonaws.com", "gs": "https://storage.googleapis.com"}


@stack_rule("Requests within the cluster bypass the web proxy", "advisory")
def web_proxies_leave_the_cluster_alone(stack: Stack) -> Iterator[Problem]:
    """A company's web proxy cannot reach Services of the cluster, such as Domino or a trace collector."""
    if any(_web_proxy(stack, scheme, f"{PROXY}.{stack.namespace}.svc") for scheme in ("http", "https")):
        variables = stack.platform.pods.environment
        name = next(name for name in variables if name.lower() in ("http_proxy", "https_proxy"))
        what = f"{name} sets a web proxy, which pods would use for Services of the cluster too"
        do = "Add NO_PROXY: .svc,.cluster.local"
        yield stack.source.problem(("pods", "environment", name), what, do=do)


@stack_rule("Eviction policies can read the cluster's keys in production", "advisory")
def eviction_policies_can_read_the_clusters_keys(stack: Stack) -> Iterator[Problem]:
    """Without the keys, a policy cannot verify lease holders, so only network policies protect it."""
    if stack.environment.production and _loads_on_demand(stack) and stack.platform.network.api_server is None:
        what = "network.apiServer is missing, so eviction policies may not get the keys that verify proxies"
        why = (
            "If the cluster enforces network policies, eviction policies cannot reach the API server. Without its keys "
            "a policy serves every process that reaches its lease port, such as a model's code in the same pod."
        )
        do = f"Add apiServer: {{addresses: [ADDRESS/32]}} under network, {API_SERVER_ENDPOINTS}"
        yield stack.source.problem(("network",), what, why, do)


def _loads_on_demand(stack: Stack) -> bool:
    return any(isinstance(pool.loading, OnDemand) for _, _, pool in stack.pools())


@definition_rule("No two data planes have the same API server", "advisory")
def no_two_data_planes_have_one_api_server(definition: Definition) -> Iterator[Problem]:
    """With the address of another cluster, eviction policies cannot verify proxies, and on-demand models answer 503."""
    seen: dict[str, str] = {}
    for stack in filter(_loads_on_demand, definition.stacks):
        server, plane = stack.platform.network.api_server, stack.data_plane
        for cidr in server.addresses if server else ():
            other = seen.setdefault(cidr, plane.name)
            if other != plane.name and ipaddress.ip_network(cidr).num_addresses == 1:  # two can be in one range
                what = f'data planes "{other}" and "{plane.name}" have one API server, {cidr}'
                why = "If they are two clusters, policies of one cannot verify proxies: on-demand models answer 503."
                shows = f"`kubectl --context {plane.context_name} get endpointslices kubernetes -n default` shows"
                do = f"Set network.apiServer in each data plane: {shows} the addresses of {plane.name}."
                yield stack.source.problem(("network", "apiServer"), what, why, do)


def _web_proxy(stack: Stack, scheme: str, host: str) -> str:
    """Return the address of the web proxy that pods use for a host, or an empty string if they call it directly."""
    variables = {name.lower(): value for name, value in stack.platform.pods.environment.items()}
    called_without = (name.strip(" .") for name in variables.get("no_proxy", "").split(","))
    if any(name == "*" or (name and f".{host}".endswith(f".{name}")) for name in called_without):
        return ""
    return variables.get(f"{scheme}_proxy", "")


@stack_rule("The proxy can reach its issuers, Domino's principal service and its trace collector")
def the_proxy_can_reach_its_identity_provider(stack: Stack) -> Iterator[Problem]:
    """Network policies block addresses without an entry, so the proxy could not fetch keys or authenticate callers."""
    domino, proxy = stack.platform.domino, stack.platform.proxy
    here = domino.platform_namespace if domino and domino.principal_url is None else None
    used: list[tuple[PathInTree, str, str]] = []
    for index, issuer in enumerate(proxy.auth.oidc):
        where = ("proxy", "auth", "oidc", index, "jwksUrl" if issuer.jwks_url else "issuer")
        used.append((where, issuer.jwks_url or issuer.issuer, "fetch the keys of this issuer"))
    if domino and domino.principal_url and proxy.auth.domino_principal:
        used.append((("domino", "principalUrl"), domino.principal_url, "authenticate callers at Domino"))
    if proxy.tracing:
        used.append((("proxy", "tracing", "endpoint"), proxy.tracing.endpoint, "export spans"))
        if re.search(r":4317(/|$)|/v1/traces/?$", proxy.tracing.endpoint):
            what = "the proxy sends spans over HTTP, not gRPC (port 4317), and adds /v1/traces itself"
            do = "Set the base address of OTLP over HTTP, such as http://collector.tracing.svc:4318."
            yield stack.source.problem(used[-1][0], what, do=do, severity="advisory")
    ways = [reach for reach in stack.platform.network.reach if "proxy" in reach.by]
    for path, address, purpose in used:
        if here is None or here not in (urlsplit(address).hostname or "").split(".")[1:2]:
            yield from _unreached(stack, path, address, ("the proxy", "by: [proxy]"), purpose, ways)


@stack_rule("Servers can reach their object store")
def servers_can_reach_their_object_store(stack: Stack) -> Iterator[Problem]:
    """Network policies block addresses without an entry, so a server could not read its repository."""
    is_lost = any(servers_that_reach_something_exist(stack))  # An entry can be meant for this server.
    for index, server, bucket in () if is_lost else stack.buckets():
        ways = [reach for reach in stack.platform.network.reach if _of_server(reach, server)]
        path = ("servers", index, "repository", "url")
        if not ways:
            what = f'server "{server.name}" has no entry in network.reach, so it cannot read {bucket.url}'
            do = f"Add the object store and the cloud's token service to network.reach with server: {server.name}."
            yield stack.source.problem(path, what, do=do)
        elif address := _store(stack, server, bucket.url):
            who = f'server "{server.name}"', f"server: {server.name}"
            yield from _unreached(stack, path, address, who, f"read {bucket.url}", ways)
    for index, server, dataset in () if is_lost else stack.mounted():
        if dataset.read_by_pods and not any(_of_server(reach, server) for reach in stack.platform.network.reach):
            what = f'server "{server.name}" has no entry in network.reach, so it cannot read dataset "{dataset.name}"'
            why = f"A sidecar that {dataset.driver} adds to the server's pods reads the bucket."
            do = f"Add the object store and the cloud's token service to network.reach with server: {server.name}."
            where = ("servers", index, "repository", "dataset")
            yield stack.source.problem(where, what, why, do, severity="advisory")


def _of_server(reach: Reach, server: Server) -> bool:
    return "servers" in reach.by or reach.server == server.name


def _store(stack: Stack, server: Server, url: str) -> str:
    """Return the address of an object store, or an empty string if a Secret has it or the URL is not valid."""
    try:
        store = parsed(url)
    except ValueError:
        return ""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    if store.endpoint or store.scheme != "s3" or not {*names} & {*server.variables.values()}:
        of_pods = stack.platform.pods.environment
        endpoint = next((of_pods[name] for name in names if name in of_pods), "")
        account = f"https://{store.account}.blob.core.windows.net"
        return store.endpoint or (store.scheme == "s3" and endpoint) or _STORES.get(store.scheme, account)
    plain = server.settings.environment
    return next((plain[name] for name in names if name in plain), "")


def _unreached(
    stack: Stack, path: PathInTree, address: str, who: tuple[str, str], purpose: str, ways: list[Reach]
) -> Iterator[Problem]:
    """Yield a problem if no entry leads to an address. `who` has the pods in words, and the key that selects them."""
    pods, key = who
    url = urlsplit(address)
    web_proxy, target = _web_proxy(stack, url.scheme, url.hostname or ""), url.hostname or ""
    if web_proxy:
        url = urlsplit(web_proxy if "//" in web_proxy else f"//{web_proxy}")  # The pods call it instead.
    host = url.hostname or ""
    try:
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError:  # The port is not a number.
        return
    service = _SERVICE.fullmatch(host) if host.endswith((".svc", ".cluster.local")) else None
    its_own = [way for way in ways if way.cidr and _holds(way.cidr, host)]
    if any(_leads_to(way, host, port, is_service=bool(service)) for way in ways):
        return
    what = f"{pods} cannot {purpose}: network.reach does not allow port {port} of {host}"
    if service:
        labels = f"namespaceLabels: {{kubernetes.io/metadata.name: {service['namespace']}}}"
        do = f"Add {{name: {host.partition('.')[0]}, {key}, {labels}}} to network.reach."
    elif its_own:
        do = f"Add {port} to the ports of {its_own[0].name} in network.reach."
    else:
        name = "web-proxy" if web_proxy else re.sub(r"[^a-z0-9]+", "-", host.partition(".")[0].lower()).strip("-")
        is_name = not re.fullmatch(r"[0-9.]+|.*:.*", host)  # Tidegate does not resolve names.
        cidr = "ADDRESS/32" if is_name else f"{host}/{128 if ':' in host else 32}"
        do = f"Add {{name: {name}, {key}, cidr: {cidr}, ports: [{port}]}} to network.reach"
        do += ", with its address" if is_name else ""
        do += f". If an entry already has its address, add {port} to its ports." if ways and is_name else "."
    if web_proxy:
        do = f"Add {target} to NO_PROXY if the pods can call it directly. Otherwise: {do}"
    severity: Severity = "advisory" if path[:2] == ("proxy", "tracing") else "error"
    yield stack.source.problem(path, what, do=do, severity=severity)


def _leads_to(way: Reach, host: str, port: int, *, is_service: bool) -> bool:
    """Return whether an entry can lead to a host. The ports of the pods behind a Service are not known."""
    if way.cidr is None:
        return not is_service or host.split(".")[1] == way.namespace_labels.get(
            "kubernetes.io/metadata.name", host.split(".")[1]
        )
    if is_service and ipaddress.ip_network(way.cidr).prefixlen < 8:
        return False  # Network policies exclude the private ranges from it.
    return not way.ports or port in way.ports


def _holds(cidr: str, host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(cidr)
    except ValueError:
        return False


@stack_rule("Servers with EKS Pod Identity can reach its agent", severity="advisory")
def servers_can_reach_the_agent_of_their_identity(stack: Stack) -> Iterator[Problem]:
    """An AWS identity without a role gets credentials from an agent on the node, which wide ranges exclude."""
    for index, server in enumerate(stack.platform.servers):
        if not isinstance(server.identity, AwsIdentity) or server.identity.role_arn:
            continue
        if not any(
            _of_server(reach, server) and reach.cidr in _POD_IDENTITY and (not reach.ports or 80 in reach.ports)
            for reach in stack.platform.network.reach
        ):
            what = f'server "{server.name}" cannot reach the EKS Pod Identity Agent, so it gets no credentials'
            do = f"Add {_POD_IDENTITY[0]} with ports: [80] and server: {server.name} to network.reach"
            do = f"{do} ({_POD_IDENTITY[1]} in IPv6 clusters), or set roleArn to use IRSA."
            yield stack.source.problem(("servers", index, "identity"), what, do=do)
