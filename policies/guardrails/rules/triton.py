"""Triton: only its own pod controls it."""

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
    "Every Triton requires a secret for model control, shared memory, trace and log settings",
    "Start Triton as the components do, with both options for model-repository, shared-memory, trace and logging.",
    shared="mandatory",
    local="advisory",
)
def tritons_keep_their_control_to_themselves(environment: Environment) -> Iterator[Breach]:
    """A caller that may load a model chooses what runs; shared memory and trace files are read and written by path.

    The secret comes from a file or variable. A Triton that polls its repository refuses loads itself: its index, which
    shares a protocol with them, may be open. No other front end is switched on, no header with credentials is handed
    to models, and no code is loaded from where models lie or a container can write.
    """
    for pod in environment.pods:
        for one in pod.containers:
            words = " ".join(text(word) for key in ("command", "args") for word in items(one.get(key)))
            if TRITON in words or TRITON in text(one.get("image")):
                yield from (Breach(pod.maker, f"container {one.get('name')} {what}") for what in _wrong(one, words))


def _wrong(container: Mapping[str, Any], words: str) -> Iterator[str]:
    for flag, pattern in _RESTRICTIONS.items():
        said = pattern.findall(words)
        restricted = {protocol for protocols, _ in said for protocol in protocols.split(",")}
        polls = set(_MODE.findall(words)) == {"poll"}
        wanted = triton.POLLING_RESTRICTED_PROTOCOLS if polls else triton.RESTRICTED_PROTOCOLS
        if missing := [each for each in wanted if each not in restricted]:
            yield f"does not restrict {', '.join(missing)} by {flag}"
        if any(not secret.startswith("$") for _, secret in said):
            yield f"has the secret of {flag} in its arguments"
    for name in dict.fromkeys(_SWITCHED_ON.findall(words)):
        yield f"switches another front end on, by --allow-{name}"
    for pattern in dict.fromkeys(_FORWARDED.findall(words)):
        if _matches(pattern.strip("'\""), "authorization"):
            yield "hands the header Authorization to models"
    # What has no read-only mount may be written to, and the repository holds what was published.
    mounts = (one for one in mappings(container.get("volumeMounts")) if one.get("readOnly") is not True)
    models = (triton.REPOSITORY_ROOT, eviction_process.STAGING_ROOT)
    places = (*models, *(text(one.get("mountPath")) for one in mounts))
    for option, folder in _CODE.findall(words):
        if any(f"{folder.strip('/')}/".startswith(f"{place.strip('/')}/") for place in places):
            yield f"loads code from {folder}, by --{option}"


def _matches(pattern: str, header: str) -> bool:
    """Say whether a pattern matches a header's name; one that cannot be read may match anything."""
    try:
        return re.fullmatch(pattern, header, re.IGNORECASE) is not None
    except re.error:
        return True
