"""Triton: only its own pod can control it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidegate_contracts import eviction_process, triton

from ..objects import TRITON, Environment, items, mappings, text
from ..rule import Breach, guardrail

_RESTRICTIONS = {
    flag: re.compile(rf"{flag}[= ]([\w,-]+):[\w-]+=([^\s'\"]*)")
    for flag in ("--http-restricted-api", "--grpc-restricted-protocol")
}
_SWITCHED_ON = re.compile(r"--allow-(sagemaker|vertex-ai)(?:[= ](?:true|1))?(?![\w=-])")
_FORWARDED = re.compile(r"--(?:http|grpc)-header-forward-pattern[= ](\S+)")
_MODE = re.compile(r"--model-control-mode[= ](\S+)")
_CODE = re.compile(r"--(backend-directory|repoagent-directory|cache-directory)[= ](\S+)")


@guardrail(
    "Every Triton server requires a secret for model control, shared memory, trace and log settings",
    "Start Triton with --http-restricted-api and --grpc-restricted-protocol for model-repository, shared-memory, trace "
    "and logging. Remove the other options that the finding names.",
    shared="mandatory",
    local="advisory",
)
def tritons_keep_their_control_to_themselves(environment: Environment) -> Iterator[Breach]:
    """A caller that can load models can run any code. Shared memory and trace settings access files by path.

    The secret must come from a file or variable. A server that polls its repository may leave model-repository open.
    The check also refuses other front ends, forwarding credentials to models, and loading code from model directories
    or writable mounts.
    """
    for pod in environment.pods:
        for one in pod.containers:
            words = " ".join(text(word) for key in ("command", "args") for word in items(one.get(key)))
            if TRITON in words or TRITON in text(one.get("image")):
                yield from (Breach(pod.maker, f"container {one.get('name')} {what}") for what in _wrong(one, words))


def _wrong(container: Mapping[str, Any], words: str) -> Iterator[str]:
    for flag, pattern in _RESTRICTIONS.items():
        given = pattern.findall(words)
        restricted = {protocol for protocols, _ in given for protocol in protocols.split(",")}
        polls = set(_MODE.findall(words)) == {"poll"}
        wanted = triton.POLLING_RESTRICTED_PROTOCOLS if polls else triton.RESTRICTED_PROTOCOLS
        if missing := [each for each in wanted if each not in restricted]:
            yield f"does not restrict {', '.join(missing)} with {flag}"
        if any(not secret.startswith("$") for _, secret in given):
            yield f"has the secret of {flag} in its arguments"
    for name in dict.fromkeys(_SWITCHED_ON.findall(words)):
        yield f"enables another front end with --allow-{name}"
    for pattern in dict.fromkeys(_FORWARDED.findall(words)):
        if _matches(pattern.strip("'\""), "authorization"):
            yield "forwards the Authorization header to models"
    # Mounts that are not read-only are writable, and people publish models into the repository.
    mounts = (one for one in mappings(container.get("volumeMounts")) if one.get("readOnly") is not True)
    models = (triton.REPOSITORY_ROOT, eviction_process.STAGING_ROOT)
    places = (*models, *(text(one.get("mountPath")) for one in mounts))
    for option, folder in _CODE.findall(words):
        if any(f"{folder.strip('/')}/".startswith(f"{place.strip('/')}/") for place in places):
            yield f"loads code from {folder} with --{option}"


def _matches(pattern: str, header: str) -> bool:
    """Return whether a pattern matches a header's name. An invalid pattern counts as matching."""
    try:
        return re.fullmatch(pattern, header, re.IGNORECASE) is not None
    except re.error:
        return True
