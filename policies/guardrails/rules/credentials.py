"""Credentials: no object contains one, because objects are rendered, committed and printed."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidegate_contracts import eviction_process
from tidegate_contracts.credentials import KNOWN, has_userinfo

from ..dynamo import mounted, needs_token
from ..objects import Environment, Pod, at, items, mapping, mappings, name_of, text, texts
from ..rule import Breach, guardrail

_WORD = r"PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|API[_-]?KEY|ACCESS[_-]?KEY|PRIVATE[_-]?KEY|CREDENTIALS?"
_NAME = re.compile(rf"(^|[_-])({_WORD})$", re.IGNORECASE)
"""The end of the name of a variable that holds a credential. HF_TOKEN_PATH, MAX_TOKENS and SECRET_NAME do not match."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_HARMLESS = re.compile(r"(true|false|yes|no|none|null|[0-9.]{1,7})?|[$</{].*|.*\$\(.*", re.IGNORECASE | re.DOTALL)
"""Values that are not credentials: empty, a switch, a small number, a path, a variable reference, a placeholder."""
_ASSIGNED = re.compile(rf"(?<![\w.-])([\w.-]*(?:{_WORD}))['\"]?\s*[=:]\s*['\"]?([^\s'\"&;,]+)", re.IGNORECASE)
_REFERENCE = {"secret", "credential", "credentials"}  # Keys of files that usually name a Secret.


@guardrail(
    "No object contains a credential",
    "Create a Secret outside the definition, and name it here. Revoke a committed credential.",
    shared="mandatory",
    local="mandatory",
)
def secrets_are_never_inline(environment: Environment) -> Iterator[Breach]:
    """Objects are rendered to files, committed, printed in reviews and stored in Pulumi's state."""
    for item in environment.objects:
        found = dict.fromkeys(_in_object(item))
        yield from (Breach(item, what) for what in found)
    for pod in environment.pods:
        for one in pod.containers:
            yield from (Breach(pod.maker, what) for what in dict.fromkeys(_in_container(one)))


@guardrail(
    "No pod mounts a token for the Kubernetes API by default",
    "Set automountServiceAccountToken: false. For another service, project a token with its audience.",
    shared="mandatory",
    local="advisory",
)
def pods_hold_no_token_of_the_cluster(environment: Environment) -> Iterator[Breach]:
    """Models are code, and could use the token of their container. Exceptions are eviction policies, whose account has
    no role, and Dynamo pods with shared frontends."""
    accounts = {
        name_of(item): item.get("automountServiceAccountToken") for item in environment.of_kind("ServiceAccount")
    }
    for item in environment.of_kind("ServiceAccount"):
        if item.get("automountServiceAccountToken") is not False:
            yield Breach(item, "pods with this account mount its token by default")
    for item in environment.of_kind("Secret"):
        if item.get("type") == "kubernetes.io/service-account-token":
            yield Breach(item, "it is a token that never expires")
    for pod in environment.pods:
        mounts = pod.spec.get("automountServiceAccountToken")
        account = text(pod.spec.get("serviceAccountName")) or text(pod.spec.get("serviceAccount")) or "default"
        if (accounts.get(account) if mounts is None else mounts) is not False:
            yield Breach(pod.maker, "the token of its service account is mounted")
        for volume in mappings(pod.spec.get("volumes")):
            for source in mappings(at(volume, "projected", "sources")):
                if "serviceAccountToken" not in source or needs_token(environment, pod, volume):
                    continue
                if _reads_keys(environment, pod, volume):
                    continue
                audience = text(at(source, "serviceAccountToken", "audience"))
                if not audience or "kubernetes.default" in audience:  # Without an audience it is for the cluster's API.
                    yield Breach(pod.maker, f"volume {volume.get('name')} holds a token for the Kubernetes API")


def _reads_keys(environment: Environment, pod: Pod, volume: Mapping[str, Any]) -> bool:
    """Return whether only an eviction policy mounts a volume, and no role is bound to the account of its token."""
    command = ["python", "-m", eviction_process.MODULE, "serve"]
    mounting = [one for one in pod.containers if text(volume.get("name")) in mounted(one)]
    is_alone = volume == eviction_process.CLUSTER and not environment.bindings_of(pod)
    return is_alone and all(items(one.get("command")) == command for one in mounting)


def _in_object(item: Mapping[str, Any]) -> Iterator[str]:
    """Check the parts that objects of every kind have, except `status`, which the API server writes."""
    if item.get("kind") == "Secret":
        if any(mapping(item.get(key)) for key in ("data", "stringData")):
            yield "it is a Secret that contains its data"
        return
    for place, value in texts({key: value for key, value in item.items() if key != "status"}):
        yield from (f"{place} holds {what}" for what, pattern in KNOWN if pattern.search(value))
    for path in (("metadata", "annotations"), ("spec", "template", "metadata", "annotations")):
        for key, value in mapping(at(item, *path)).items():
            name = str(key).rpartition("/")[2]
            # Annotations often name Secrets, and short values are usually options.
            if "secret" not in name and len(text(value)) >= 8 and _is_credential(name, value):
                yield f"{'.'.join(path)}.{key} looks like a credential"
    if item.get("kind") == "ConfigMap":
        for key, value in mapping(item.get("data")).items():
            if _is_credential(str(key), value):
                yield f"data.{key} looks like a credential"
            elif isinstance(value, str) and "\n" in value:
                yield from _in_text(f"data.{key}", value)


def _in_text(place: str, value: str) -> Iterator[str]:
    """Check the text of a file: the keys of JSON, otherwise the words before an equals sign or a colon."""
    try:
        tree = json.loads(value)
    except (ValueError, RecursionError):
        found = _ASSIGNED.findall(value)
    else:
        found = [(path.rpartition(".")[2], leaf) for path, leaf in texts(tree)]
    for key, leaf in found:
        if key.lower() not in _REFERENCE and _is_credential(key, leaf):
            yield f"{place} gives {key} a value that looks like a credential"


def _in_container(container: Mapping[str, Any]) -> Iterator[str]:
    for variable in mappings(container.get("env")):
        name, value = text(variable.get("name")), variable.get("value")
        if _is_credential(name, value) or (name.lower().endswith("_proxy") and has_userinfo(text(value))):
            yield f"container {container.get('name')}: variable {name} holds a credential"
    for key in ("command", "args"):
        # One argument can be a whole shell command, so check each of its words.
        words = [part for word in items(container.get(key)) for part in text(word).split()]
        for word, following in zip(words, [*words[1:], ""], strict=False):
            option, equals, value = word.partition("=")
            is_named = word.startswith("-") or (equals and option.isidentifier())
            if is_named and _is_credential(option.lstrip("-"), value if equals else following):
                yield f"container {container.get('name')}: argument {option} holds a credential"


def _is_credential(name: str, value: Any) -> bool:
    """Return whether the name is that of a credential and the value could be one."""
    if not isinstance(value, str) or _HARMLESS.fullmatch(value.strip()) or value.startswith("-"):
        return False
    return bool(_NAME.search(_CAMEL.sub("_", name)))
