"""Rules of identity: issuers match tokens, access rules can apply, and names are not credentials."""

import difflib
import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from tidegate_contracts.credentials import KNOWN

from ..definition.models import Model
from ..definition.proxy import AccessRule
from ..load import PathInTree
from ..problems import Problem, Severity, listed
from ..stack import Definition, Stack
from .references import matches
from .rule import definition_rule, stack_rule

_KEY = re.compile(
    r"^(sk|pk|rk)[-_](?=\S*[0-9])\S{16,}$|^eyJ[\w-]{8,}|^Bearer\s"
    r"|^(api|key|hf|ghp|glpat|nvapi|tgk)[-_](\S*[-_])?(?=\S*[0-9])[A-Za-z0-9]{12,}$"
)
_RANDOM = re.compile(r"^(?=\S*[0-9])(?=\S*[a-z])([0-9a-f]{32,}|(?=\S*[A-Z])[A-Za-z0-9+/_-]{40,}={0,2})$")
"""Keys without a prefix look like this, and so do subjects of some issuers, such as Entra ID."""
_UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

_ENDPOINT = re.compile(
    r"/\.well-known(/|$)|/protocol/openid-connect(/|$)|/(jwks|certs|keys|jwks\.json|authorize|token|userinfo)/?$"
)
_ISSUERS: tuple[tuple[str, str], ...] = (
    (
        r"https://login\.microsoftonline\.com/(common|organizations|consumers)(/|$)",
        "Entra ID's tokens name the tenant: https://login.microsoftonline.com/TENANT-ID/v2.0",
    ),
    (
        r"https://login\.microsoftonline\.com/[^/]+/?$|https://login\.microsoftonline\.com/[^/]+/v2\.0/$",
        "Entra ID's tokens name https://login.microsoftonline.com/TENANT-ID/v2.0, or https://sts.windows.net/TENANT-ID/",
    ),
    (r"https://sts\.windows\.net/[^/]+$", "Entra ID's version 1 tokens name it with a slash at its end"),
    (r"https://[^/]+\.auth0\.com$", "Auth0's tokens name it with a slash at its end"),
    (r"https://[^/]+-admin\.okta(preview)?\.com", "Okta's tokens name its host without -admin"),
    (r"https://[^/]+\.okta(preview)?\.com(/oauth2/[^/]+)?/$", "Okta's tokens name it without a slash at its end"),
    (r"https?://[^?#]+/realms/[^/]+/.*$", "Keycloak's tokens name it as …/realms/REALM, without anything after it"),
    (
        r"https://(accounts\.google\.com|token\.actions\.githubusercontent\.com|gitlab\.com"
        r"|cognito-idp\.[^/]+/[^/]+|oidc\.eks\.[^/]+/id/[^/]+)/$",
        "Its tokens name it without a slash at its end",
    ),
    (r"https://[^/]+:443(/|$)", "Tokens seldom name the default port"),
)
"""Issuers that no token of a known provider contains, and what its tokens contain."""
_WITHOUT_GROUPS = ("https://accounts.google.com", "https://token.actions.githubusercontent.com")


@stack_rule("Each issuer is written as its tokens name it", "advisory")
def issuers_can_match(stack: Stack) -> Iterator[Problem]:
    """The proxy compares an issuer with a token's `iss` character by character."""
    for index, issuer in enumerate(stack.platform.proxy.auth.oidc):
        path: PathInTree = ("proxy", "auth", "oidc", index, "issuer")
        found = _ENDPOINT.search(urlsplit(issuer.issuer).path)
        if found:
            what = f"{issuer.issuer} is an endpoint of an issuer, but no token names it"
            base = issuer.issuer[: issuer.issuer.index(found[0])]
            do = f"Set issuer as tokens have it in iss, such as {base}. The address of the keys goes into jwksUrl."
            yield stack.source.problem(path, what, "The proxy would refuse every token.", do)
            continue
        for pattern, right in _ISSUERS:
            if re.match(pattern, issuer.issuer):
                what = f"no token of its provider names {issuer.issuer} as its issuer"
                why = "The proxy compares it with a token's iss character by character, and would refuse every token."
                yield stack.source.problem(path, what, why, f"{right}. Set it as in the tokens.")
                break
        if issuer.jwks_url and "/.well-known/openid-configuration" in issuer.jwks_url:
            what = "jwksUrl is the discovery document, which has no keys"
            do = "Remove jwksUrl, because the proxy finds the keys by discovery. Or set it to the document's jwks_uri."
            yield stack.source.problem((*path[:-1], "jwksUrl"), what, do=do)
        if "*" in issuer.audiences:
            what = "the proxy compares audiences literally, so only a token for the audience * matches"
            yield stack.source.problem((*path[:-1], "audiences"), what, do="Set the audience of this proxy.")


@stack_rule("Groups come from a source that has groups")
def groups_come_from_sources_that_have_them(stack: Stack) -> Iterator[Problem]:
    """Callers with API keys or of Domino have no groups, and tokens of some providers have none."""
    auth = stack.platform.proxy.auth
    for index, rule in enumerate(stack.platform.proxy.access):
        trusted = [source for source in auth.sources if rule.source in (None, source)]
        issuers = [issuer for issuer in trusted if issuer in auth.issuers]
        with_groups = [issuer for issuer in issuers if issuer.rstrip("/") not in _WITHOUT_GROUPS]
        if rule.groups and not rule.principals and trusted and not with_groups:
            what = f'access rule "{rule.name}" names only groups, but callers of {listed(trusted)} have none'
            do = "Set principals, or add an issuer whose tokens list groups to proxy.auth.oidc."
            severity: Severity = "advisory" if issuers else "error"
            yield stack.source.problem(("proxy", "access", index, "groups"), what, do=do, severity=severity)


@stack_rule("No principal, group, writer or audience is a credential")
def names_are_no_credentials(stack: Stack) -> Iterator[Problem]:
    """A rule names the principal of a key, not the key. The definition is in version control, so a key would leak."""
    platform, promotion = stack.platform, stack.environment.promotion
    places: list[tuple[PathInTree, Sequence[str]]] = []
    for index, rule in enumerate(platform.proxy.access):
        places += [(("proxy", "access", index, key), getattr(rule, key)) for key in ("principals", "groups")]
    places += [(("datasets", index, "writers"), each.writers) for index, each in enumerate(platform.datasets)]
    places += [(("servers", index, "repository", "writers"), bucket.writers) for index, _, bucket in stack.buckets()]
    for index, issuer in enumerate(platform.proxy.auth.oidc):
        places.append((("proxy", "auth", "oidc", index, "audiences"), issuer.audiences))
    for path, name in ((((*path, n), name)) for path, names in places for n, name in enumerate(names)):
        # Some providers generate random audiences.
        may_be_random = "audiences" in path or _UUID.match(name) or not _RANDOM.match(name)
        if not (is_key := _is_credential(name)) and may_be_random:
            continue
        what = "this name looks like a key or a token"
        do = "evoke it. Set the name of its principal, which is its entry in the Secret of proxy.auth.apiKeys."
        do = do if "audiences" not in path else "evoke it. Set the value that the issuer's tokens have in aud."
        do = f"R{do}" if is_key else f"If it is one, r{do}"
        why = "The definition is in version control, and logs of pods can contain it."
        yield stack.source.problem(path, what, why, do, severity="error" if is_key else "advisory")
    if any(map(_is_credential, (*promotion.principals, *promotion.groups))):
        what = f'a name in promotion of environment "{stack.environment.name}" looks like a key or a token'
        yield stack.source.problem((), what, do="Revoke it. Set the name of its principal.")


def _is_credential(name: str) -> bool:
    return bool(_KEY.match(name)) or any(pattern.search(name) for _, pattern in KNOWN)


@stack_rule("An access rule grants something", "advisory")
def access_rules_grant_something(stack: Stack) -> Iterator[Problem]:
    platform = stack.platform
    servers = {server.name for server in platform.servers}
    for index, rule in enumerate(platform.proxy.access):
        on_servers = any(matches(name, rule.servers) for name in servers)
        on_models = any(matches(model.name, rule.models) for model in platform.models)
        if on_servers and on_models and not any(_grants(rule, model) for model in platform.models):
            what = f'access rule "{rule.name}" grants nothing: none of its models is on one of its servers'
            do = "Set servers to the server of the models, or models to models of the servers."
            yield stack.source.problem(("proxy", "access", index, "models"), what, do=do)


@stack_rule("Every model has a caller", "advisory")
def every_model_has_a_caller(stack: Stack) -> Iterator[Problem]:
    rules = [rule for rule in stack.platform.proxy.access if "infer" in rule.actions]
    missed = [model for model in stack.platform.models if not any(_grants(rule, model) for rule in rules)]
    if missed and stack.platform.proxy.access:
        names = listed((each.name for each in missed), most=8)
        what = f"no access rule lets anyone call {names}"
        do = "Add the models, or their servers, to a rule under proxy.access. Or remove the models."
        yield stack.source.problem(("proxy", "access"), what, do=do)


@stack_rule("Every source of identities has an access rule", "advisory")
def every_source_has_an_access_rule(stack: Stack) -> Iterator[Problem]:
    auth, rules = stack.platform.proxy.auth, stack.platform.proxy.access
    for source in auth.sources if rules else ():
        can_have_groups = source in auth.issuers
        if not any(rule.source in (None, source) and (rule.principals or can_have_groups) for rule in rules):
            key = "apiKeys" if source == "api-keys" else "dominoPrincipal" if source == "domino" else "oidc"
            what = f"no access rule can match a caller of {source}"
            do = f"Add a rule with source: {source}, or remove it from proxy.auth."
            yield stack.source.problem(("proxy", "auth", key), what, do=do)


def _grants(rule: AccessRule, model: Model) -> bool:
    return matches(model.server, rule.servers) and matches(model.name, rule.models)


@definition_rule("An overlay adds issuers to those of the common part", "advisory")
def overlays_keep_the_common_issuers(definition: Definition) -> Iterator[Problem]:
    """An overlay replaces a list without names, so its issuers replace those of the common part."""
    common = definition.document.get(("proxy", "auth", "oidc"))
    common_ones = (
        [str(each.get("issuer")) for each in common if isinstance(each, dict)] if isinstance(common, list) else []
    )
    shown = set()
    for stack in definition.stacks:
        issuers = stack.platform.proxy.auth.issuers
        gone = [each for each in common_ones if each not in issuers]
        # An issuer of the same provider, such as another realm, replaces the common one on purpose.
        unlike = [each for each in gone if not difflib.get_close_matches(each, issuers, 1, 0.8)]
        problem_at = stack.source.position(("proxy", "auth", "oidc"))
        if unlike and issuers and problem_at not in shown:
            shown.add(problem_at)
            what = f'environment "{stack.environment.name}" no longer trusts {listed(unlike)}'
            why = "An overlay replaces a list without names, so its issuers replace those of the common part."
            do = "Add all issuers to the overlay. To refuse callers of the common issuer, move it to other overlays."
            yield stack.source.problem(("proxy", "auth", "oidc"), what, why, do)
