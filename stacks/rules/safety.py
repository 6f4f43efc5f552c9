"""Safety: what may not happen by accident, above all in production."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import pairwise

from tidegate_contracts.credentials import KNOWN, has_userinfo

from policies.guardrails.rules.datasets import Folder

from ..definition.datasets import HostPathDataset
from ..definition.openai import SECRET_OPTION
from ..definition.proxy import HttpRouteExposure, IngressExposure, LoadBalancerExposure
from ..load import PathInTree
from ..problems import Problem
from ..stack import Definition, Stack
from .rule import definition_rule, stack_rule

_NAMED = re.compile(r"(?:^|[\s;&])(?:--?([A-Za-z][\w-]*)|([A-Za-z_]\w*)(?==))(?:=\$\((\w+)\))?")
"""An option in a word of a command, or what a shell is told to set; and the variable that it is set to."""
_SECRET_NAME = re.compile(r"PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL", re.IGNORECASE)

_IN_ADDRESS = dict(KNOWN)["a password in an address"]


@stack_rule("Datasets of kind hostPath are only for local environments")
def host_paths_are_for_local_environments(stack: Stack) -> Iterator[Problem]:
    """A folder of a node is not the same folder on the next one, and Pod Security refuses none of its content."""
    if stack.environment.local:
        return
    for index, dataset in enumerate(stack.platform.datasets):
        if isinstance(dataset, HostPathDataset):
            what = f'dataset "{dataset.name}" is a hostPath, and environment "{stack.environment.name}" is not local'
            do = "Use a shared volume, or mark the environment with local: true."
            yield stack.source.problem(("datasets", index, "kind"), what, do=do)


@stack_rule("No access rule in production lets every caller use every model")
def nobody_is_granted_everything_in_production(stack: Stack) -> Iterator[Problem]:
    """A rule for every caller and every model restricts nothing."""
    if not stack.environment.production:
        return
    for index, rule in enumerate(stack.platform.proxy.access):
        everybody = any(not name.strip("*?") for name in (*rule.principals, *rule.groups))
        everything = _all_match([server.name for server in stack.platform.servers], rule.servers) and _all_match(
            [model.name for model in stack.platform.models], rule.models
        )
        if everybody and everything and "infer" in rule.actions:
            what = f'access rule "{rule.name}" lets everybody call every model in production'
            do = "Name the principals or groups, or the models."
            yield stack.source.problem(("proxy", "access", index), what, do=do)


def _all_match(names: list[str], globs: Iterable[str]) -> bool:
    """Say whether the globs, together, match all these names; without names, whether one of them matches any name."""
    if any(not glob.strip("*?") for glob in globs):
        return True
    return bool(names) and all(any(fnmatchcase(name, glob) for glob in globs) for name in names)


@stack_rule("The definition contains no secret")
def secrets_are_never_written_inline(stack: Stack) -> Iterator[Problem]:
    """The definition stands in version control and in manifests."""
    variables = {("pods", "environment", name): name for name in stack.platform.pods.environment} | {
        ("servers", index, server.kind, *where): name
        for index, server in enumerate(stack.platform.servers)
        for where, name in server.variables.items()
        if where[0] == "environment"
    }
    for place, name in variables.items():
        value = str(stack.source.get(place))
        if _SECRET_NAME.search(name):
            yield _secret(stack, place, name)
        elif _IN_ADDRESS.search(value) or (name.lower().endswith("_proxy") and has_userinfo(value)):
            what = f"{name} holds a password, and the definition is no place for one"
            do = "Take it out, and change it; what needs one reads it out of a Secret (secretEnvironment of a server)."
            yield stack.source.problem(place, what, do=do)
    for index, server in enumerate(stack.platform.servers):
        secret = {name for where, name in server.variables.items() if where[0] == "secretEnvironment"}
        for key, words in server.words.items():
            for number, (word, after) in enumerate(pairwise((*words, ""))):
                text = f"{word}={after}" if after.startswith("$(") else word
                said = [option or name for option, name, value in _NAMED.findall(text) if value not in secret]
                found = [name for name in said if SECRET_OPTION.search(name.lower().replace("_", "-"))]
                if found:
                    yield _secret(stack, ("servers", index, server.kind, key, number), found[0])


def _secret(stack: Stack, place: PathInTree, name: str) -> Problem:
    what = f"{name} looks like a secret, and the definition is no place for one"
    do = "Use the server's identity for object storage; keep credentials in a Secret (secretEnvironment of the server)."
    return stack.source.problem(place, what, do=do)


@stack_rule("No environment variable is set twice for one container")
def no_variable_stands_twice(stack: Stack) -> Iterator[Problem]:
    """A container has each environment variable once."""
    for index, server in enumerate(stack.platform.servers):
        for where, name in server.variables.items():
            if name in stack.platform.pods.environment:
                what = f'{name} is a variable of all pods, and of server "{server.name}" too'
                do = "Say it here or in pods.environment, and not in both."
                yield stack.source.problem(("servers", index, server.kind, *where), what, do=do)


@stack_rule("Each issuer is configured once")
def no_issuer_stands_twice(stack: Stack) -> Iterator[Problem]:
    """A token names its issuer, and the proxy has to know which audiences and claims count."""
    issuers = [issuer.issuer for issuer in stack.platform.proxy.auth.oidc]
    for index, issuer in enumerate(issuers):
        if issuer in issuers[:index]:
            what = f"the issuer {issuer} stands twice"
            do = "Join their audiences in one."
            yield stack.source.problem(("proxy", "auth", "oidc", index, "issuer"), what, do=do)


@stack_rule("An access rule names its source if several sources exist", "advisory")
def access_rules_say_who_vouches_where_several_do(stack: Stack) -> Iterator[Problem]:
    """A name identifies a caller only together with its issuer: another issuer may give ci, or admins, to others."""
    proxy = stack.platform.proxy
    for index, rule in enumerate(proxy.access):
        if rule.source is not None:
            continue
        for key, several in (
            ("principals", proxy.auth.sources if rule.principals else []),
            ("groups", proxy.auth.issuers if rule.groups else []),
        ):
            if len(several) > 1:
                what = (
                    f'access rule "{rule.name}" does not say who vouches for its {key}: '
                    f"{', '.join(several)} may each give somebody such a name"
                )
                do = "Say which in source; a rule for each where several are meant."
                yield stack.source.problem(("proxy", "access", index, key), what, do=do)


@stack_rule("The network admits at least one caller", "advisory")
def somebody_may_call_the_proxy(stack: Stack) -> Iterator[Problem]:
    """The network admits named callers only; where an Ingress' controller runs, the definition has to say."""
    platform = stack.platform
    exposure = platform.proxy.exposure
    if isinstance(exposure, HttpRouteExposure | LoadBalancerExposure) or platform.network.callers:
        return
    if isinstance(exposure, IngressExposure):
        what = "the Ingress' controller may not call the proxy"
        do = "Name the controller's namespace under network.callers."
        yield stack.source.problem(("proxy", "exposure", "kind"), what, do=do)
    elif platform.domino is None:
        what = f'nobody may call the proxy of environment "{stack.environment.name}"'
        do = "Name callers under network.callers."
        yield stack.source.problem(("network", "callers"), what, do=do)


@stack_rule("The proxy has a way to authenticate callers, and an access rule", "advisory")
def somebody_can_authenticate_and_call(stack: Stack) -> Iterator[Problem]:
    """Without an issuer, API keys or Domino, the proxy refuses every caller; so it does without an access rule."""
    lacking = "" if stack.platform.proxy.access else "access rule"
    key, do = "access", "Add rules under proxy.access: what none grants is refused."
    if not stack.platform.proxy.auth.sources:
        lacking, key, do = "way to know its callers", "auth", "Add proxy.auth.oidc, apiKeys or dominoPrincipal."
    if lacking:
        what = f'the proxy of environment "{stack.environment.name}" has no {lacking}, so it refuses everybody'
        yield stack.source.problem(("proxy", key), what, do=do)


@stack_rule("An access rule can match a caller")
def access_rules_can_match_somebody(stack: Stack) -> Iterator[Problem]:
    """Tokens of issuers tell groups; API keys and Domino's principal endpoint tell a name, and no groups."""
    auth = stack.platform.proxy.auth
    for index, rule in enumerate(stack.platform.proxy.access):
        believed = [source for source in auth.sources if rule.source in (None, source)]
        if rule.groups and not rule.principals and believed and not set(believed) & {*auth.issuers}:
            what = (
                f'access rule "{rule.name}" names groups only, and {" and ".join(believed)} tell none: it fits nobody'
            )
            do = "Name principals, or add the issuer of the groups to proxy.auth.oidc."
            yield stack.source.problem(("proxy", "access", index, "groups"), what, do=do)


@stack_rule("The Ingress controller uses the proxy's protocol")
def an_ingress_speaks_what_the_proxy_serves(stack: Stack) -> Iterator[Problem]:
    """A controller that speaks HTTPS to a proxy without a certificate, or plain HTTP to one with it, gets no answer."""
    proxy = stack.platform.proxy
    said = proxy.exposure.annotations if isinstance(proxy.exposure, IngressExposure) else {}
    for key, value in said.items():
        if key.endswith("/backend-protocol") and value.upper().endswith("S") == (proxy.tls is None):
            serves = "plain HTTP: it has no tls" if proxy.tls is None else "HTTPS, by its tls"
            what = f"{key} lets the controller speak {value} to the proxy, which serves {serves}"
            do = "Add proxy.tls, or take the annotation away." if proxy.tls is None else "Write HTTPS."
            yield stack.source.problem(("proxy", "exposure", "annotations", key), what, do=do)


@stack_rule("The certificate behind an HTTPRoute is the Gateway's")
def a_gateway_is_given_no_certificate_of_the_proxy(stack: Stack) -> Iterator[Problem]:
    """A Gateway ends TLS itself, at its listener, and speaks plain HTTP to what is behind an HTTPRoute."""
    proxy = stack.platform.proxy
    if proxy.tls is not None and isinstance(proxy.exposure, HttpRouteExposure):
        why = "the Gateway would speak plain HTTP to a proxy that serves HTTPS"
        what = f"tls and an exposure of kind http-route cannot stand together: {why}"
        do = "Take tls away (the Gateway's listener holds the certificate), or expose by ingress or load-balancer."
        yield stack.source.problem(("proxy", "tls"), what, do=do)


@definition_rule("No other environment may write production's models")
def production_shares_nothing_that_others_may_write(definition: Definition) -> Iterator[Problem]:
    """What dev may write, prod must not serve: no dataset, and no prefix of a bucket."""
    theirs = _served(definition, production=False)
    for (environment, ours, _, folders), (stack, path) in _served(definition, production=True).items():
        for other, name, writers, written in theirs:
            if writers and any(one.overlaps(two) for one in folders for two in written):
                where = f'environment "{other}", where {", ".join(writers)} may write {name}'
                what = f'production environment "{environment}" shares {ours} with {where}'
                do = f'Give "{environment}" a dataset, bucket or prefix of its own.'
                yield stack.source.problem(path, what, do=do)


Served = tuple[str, str, tuple[str, ...], tuple[Folder, ...]]
"""Environment, name of a dataset or address of a bucket, its writers, and the folders in which the files lie."""


def _served(definition: Definition, *, production: bool) -> dict[Served, tuple[Stack, PathInTree]]:
    """Return what production serves, or the rest, and where that stands; what many data planes share is there once."""
    found: dict[Served, tuple[Stack, PathInTree]] = {}
    for stack in (stack for stack in definition.stacks if stack.environment.production == production):
        name = stack.environment.name
        for index, dataset in enumerate(stack.platform.datasets):
            served = name, f'dataset "{dataset.name}"', dataset.writers, tuple(stack.folders(dataset))
            found.setdefault(served, (stack, ("datasets", index)))
        for index, server, bucket in stack.buckets():
            served = name, bucket.url, bucket.writers, stack.repository(server)
            found.setdefault(served, (stack, ("servers", index, "repository", "url")))
    return found
