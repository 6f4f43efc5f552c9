"""Dangerous changes of objects around pods, by the guardrail that must find each. After Kubernetes' documentation."""

from collections.abc import Mapping, Sequence

from tests.cases import GONE

from .dangers import (
    ACCESS,
    ISSUERS,
    Change,
    Danger,
    added,
    allowed,
    bound,
    containers,
    every,
    granting,
    in_issuer,
    more,
    policy,
    put,
    refusals,
    removed,
    role,
    services,
    specs,
    together,
    whole,
)
from .stacks import Objects

ENFORCE = "metadata/labels/pod-security.kubernetes.io~enforce"
NAMESPACES, ACCOUNTS = every("Namespace"), every("ServiceAccount")
INGRESSES, ROUTES = every("Ingress"), every("Ingress", "HTTPRoute", "Service")
VOLUMES = every("PersistentVolume")
PROXY, SERVER = services("proxy"), services("server")
NGINX = "metadata/annotations/nginx.ingress.kubernetes.io~"
TO_PROXY = {"service": {"name": "inference-proxy", "port": {"name": "http"}}}
METADATA = "169.254.169.254/32"
EVERYWHERE = [{"ipBlock": {"cidr": "0.0.0.0/0"}}]
CALLER = {"matchLabels": {"caller": "true"}}
TO_CALL = allowed("ingress", "callers-to-proxy")
DANGER = "danger.example.com"
BACKEND = {"http": {"paths": [{"backend": TO_PROXY}]}}
PLAIN = [{"name": "plain", "port": 80, "targetPort": "http"}]
API = "https://kubernetes.default.svc.cluster.local"
UNSAID = put("automountServiceAccountToken", GONE)


def leading_to_a_server(stack: Objects) -> None:
    server = SERVER(stack)[0]["metadata"]["name"]
    added("Ingress", spec={"defaultBackend": {"service": {"name": server}}})(stack)


def block(cidr: str) -> list[dict[str, dict[str, str]]]:
    return [{"ipBlock": {"cidr": cidr}}]


def out(cidr: str, *ports: int) -> Danger:
    to = {"to": block(cidr), **({"ports": [{"port": port} for port in ports]} if ports else {})}
    what = f"every pod may reach {cidr}, ports {', '.join(map(str, ports)) or 'all'}"
    return what, whole, policy(policyTypes=["Egress"], egress=[to])


def coming(what: str, *peers: object) -> Danger:
    return f"{what} may come in", allowed("ingress"), put("from", list(peers))


def namespaces(key: str, operator: str, **values: object) -> object:
    return {"namespaceSelector": {"matchExpressions": [{"key": key, "operator": operator, **values}]}}


def balancer(ranges: object) -> Change:
    return together(put("spec/type", "LoadBalancer"), put("spec/loadBalancerSourceRanges", ranges))


def token(**projected: object) -> object:
    return {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token", **projected}}]}}


AROUND_PODS: Mapping[str, Sequence[Danger]] = {
    "nothing-bypasses-the-proxy": [
        ("servers on a load balancer", SERVER, put("spec/type", "LoadBalancer")),
        ("servers on a port of every node", SERVER, put("spec/type", "NodePort")),
        ("servers on an address of another host", SERVER, put("spec/externalIPs", ["203.0.113.9"])),
        ("every pod may call servers", allowed("ingress", "servers-from-proxy"), put("from", GONE)),
        ("a range of addresses may call servers", allowed("ingress", "servers-from"), put("from", block("10.0.0.0/8"))),
        ("the default backend of an Ingress is a server", whole, leading_to_a_server),
        ("their neighbours may hold leases", allowed("ingress", "policy-from"), put("from", [{"podSelector": {}}])),
    ],
    "everything-is-refused-by-default": [
        ("there is no NetworkPolicy at all", whole, removed("NetworkPolicy")),
        ("only what comes in is refused", refusals, put("spec/policyTypes", ["Ingress"])),
        ("only what goes out is refused", refusals, put("spec/policyTypes", ["Egress"])),
        ("the refusal lets everything in", refusals, put("spec/ingress", [{}])),
        ("the refusal lets everything out", refusals, put("spec/egress", [{}])),
        ("an administrator's policy comes first", whole, added("AdminNetworkPolicy", spec={"priority": 1})),
    ],
    "callers-are-named": [
        ("every address may come in", allowed("ingress"), put("from", GONE)),
        coming("an empty list"),
        coming("an empty peer", {}),
        coming("all of IPv4", *EVERYWHERE),
        coming("all of IPv6", *block("::/0")),
        coming("every namespace", {"namespaceSelector": {}}),
        coming("every namespace that has a name", namespaces("kubernetes.io/metadata.name", "Exists")),
        coming("every namespace but one", namespaces("a", "NotIn", values=["b"])),
        coming("pods with a caller's label in any namespace", {"namespaceSelector": {}, "podSelector": CALLER}),
        ("callers reach all ports of the proxy", TO_CALL, put("ports", GONE)),
        ("callers reach its admin port", TO_CALL, more("ports", {"port": 8082})),
        ("callers reach it by name", TO_CALL, more("ports", {"port": "admin"})),
        ("callers reach it in a range", TO_CALL, put("ports", [{"port": 8080, "endPort": 8089}])),
        ("another policy admits every address", whole, policy(ingress=[{}])),
        ("every address may read metrics", allowed("ingress", "metrics-of"), put("from", GONE)),
        ("all namespaces may read metrics", allowed("ingress", "metrics-of"), put("from", [{"namespaceSelector": {}}])),
    ],
    "destinations-are-named": [
        ("pods may go anywhere", allowed("egress"), put("to", GONE)),
        ("pods may go to an empty list", allowed("egress"), put("to", [])),
        ("pods may go to every namespace", allowed("egress"), put("to", [{"namespaceSelector": {}}])),
        ("all of IPv4, on all ports", allowed("egress"), together(put("to", EVERYWHERE), put("ports", GONE))),
        ("another policy allows all egress", whole, policy(policyTypes=["Egress"], egress=[{}])),
        ("the metadata address among others", allowed("egress", "dns"), more("to", *block(METADATA))),
        *(out(cidr) for cidr in ("0.0.0.0/0", "0.0.0.0/1", "::/0", METADATA)),
        *(out(cidr, 80) for cidr in (METADATA, "169.254.170.2/32", "fd00:ec2::254/128", "0.0.0.0/0")),
        out("169.254.0.0/16", 443),
        out("169.254.169.252/32", 988),
    ],
    "the-proxy-is-exposed-to-named-callers": [
        ("a load balancer for every address", PROXY, balancer(GONE)),
        ("a load balancer for all of IPv4", PROXY, balancer(["10.0.0.0/8", "0.0.0.0/0"])),
        ("a port of every node", PROXY, put("spec/type", "NodePort")),
        ("an address of another host", PROXY, put("spec/externalIPs", ["203.0.113.9"])),
        ("the admin port too", PROXY, lambda item: more("ports", {"port": 9, "targetPort": 8082})(item["spec"])),
        ("addresses by hand", whole, added("EndpointSlice", endpoints=[{"addresses": ["10.0.0.9"]}])),
    ],
    "calls-from-outside-are-encrypted": [
        ("a load balancer without TLS", PROXY, together(put("spec/type", "LoadBalancer"), put("spec/ports", PLAIN))),
        ("an Ingress without TLS", whole, added("Ingress", spec={"rules": [{"host": DANGER, **BACKEND}]})),
        ("the Ingress has no TLS any more", INGRESSES, together(put("spec/tls", []), put("spec/rules/0/host", DANGER))),
        ("the Ingress has TLS for another host", INGRESSES, put("spec/rules/0/host", DANGER)),
        ("the Ingress answers for every host", INGRESSES, put("spec/rules/0/host", GONE)),
        ("the Ingress is the one for all the rest", INGRESSES, put("spec/defaultBackend", TO_PROXY)),
        ("the Ingress answers without TLS too", INGRESSES, put(f"{NGINX}ssl-redirect", "false")),
        ("a Gateway without TLS", whole, added("Gateway", spec={"listeners": [{"name": "h", "protocol": "HTTP"}]})),
        ("a route of OpenShift without TLS", whole, added("Route", spec={"to": {"name": "inference-proxy"}})),
    ],
    "namespaces-enforce-pod-security-restricted": [
        ("nothing is enforced", NAMESPACES, put(ENFORCE, GONE)),
        ("the baseline is enforced", NAMESPACES, put(ENFORCE, "baseline")),
        ("a profile that there is not", NAMESPACES, put(ENFORCE, "Restricted")),
        ("a profile of long ago", NAMESPACES, put(f"{ENFORCE}-version", "v1.22")),
        ("a namespace that another stack declares", whole, removed("Namespace")),
    ],
    "volumes-are-retained": [
        ("models go with their claim", VOLUMES, put("spec/persistentVolumeReclaimPolicy", "Delete")),
        ("models are deleted by default", VOLUMES, put("spec/persistentVolumeReclaimPolicy", GONE)),
    ],
    "volumes-are-no-folders-of-nodes": [
        ("a folder of the node", VOLUMES, put("spec/hostPath", {"path": "/var/lib/kubelet"})),
        ("a disk of the node", VOLUMES, put("spec/local", {"path": "/mnt/disks/1"})),
        ("a further volume, of the node's root", whole, added("PersistentVolume", spec={"hostPath": {"path": "/"}})),
    ],
    "secrets-are-never-inline": [
        ("a Secret with its data", whole, added("Secret", stringData={"password": "correct-horse"})),
        ("a password in a variable", containers, more("env", {"name": "DB_PASSWORD", "value": "correct-horse-1"})),
        ("a token among the arguments", containers, more("args", "--api-token=0123456789abcdef0123")),
    ],
    "pods-hold-no-token-of-the-cluster": [
        ("its token is mounted", specs, put("automountServiceAccountToken", True)),
        ("the default account's token is mounted", specs, together(UNSAID, put("serviceAccountName", "default"))),
        ("no account is named", specs, together(UNSAID, put("serviceAccountName", GONE))),
        ("an account that hands its token out", ACCOUNTS, put("automountServiceAccountToken", True)),
        ("an account that mounts it by default", ACCOUNTS, put("automountServiceAccountToken", GONE)),
        ("a token as a volume", specs, more("volumes", token())),
        ("a token that never ends", whole, added("Secret", type="kubernetes.io/service-account-token")),
    ],
    "access-rules-name-their-callers": [
        ("all principals may call", ACCESS, granting(principals=["*"])),
        ("every group may call", ACCESS, granting(groups=["?*"])),
    ],
    "access-rules-name-servers-or-models": [
        ("all models there will ever be", ACCESS, granting(servers=["*"], models=["**"]))
    ],
    "issuers-are-asked-over-https": [
        ("an issuer without TLS", ISSUERS, in_issuer(issuer="http://idp.example.com")),
        ("keys without TLS", ISSUERS, in_issuer(jwksUrl="http://idp.example.com/keys")),
    ],
    "roles-let-only-read": [
        *(
            (f"{kind} to {to}", whole, bound(kind, to))
            for kind in ("ClusterRoleBinding", "RoleBinding")
            for to in ("cluster-admin", "admin", "edit", "system:masters")
        ),
        *(
            (f"all of system:{subject} may look", whole, bound("RoleBinding", "view", f"system:{subject}"))
            for subject in ("anonymous", "unauthenticated", "authenticated", "serviceaccounts", "serviceaccounts:prod")
        ),
        role(verbs=["*"]),
        role("ClusterRole", verbs=["*"], resources=["*"], apiGroups=["*"]),
        role(resources=["*"]),
        role(resources=["pods/*"]),
        role(apiGroups=["*"]),
        role("ClusterRole", resources=[], nonResourceURLs=["*"]),
        role(resources=["secrets"]),
        role(verbs=["create"]),
        role(resources=["pods/exec"]),
        role("ClusterRole", resources=["nodes/proxy"]),
        role("ClusterRole", resources=["clusterroles"], apiGroups=["rbac.authorization.k8s.io"], verbs=["bind"]),
        role("ClusterRole", resources=["users"], verbs=["impersonate"]),
        ("a role made of others", whole, added("ClusterRole", aggregationRule={"clusterRoleSelectors": [{}]})),
    ],
}
