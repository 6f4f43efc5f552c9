"""Parts of the values that are Kubernetes' own, with the keys that Tidegate writes there."""

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypedDict

from stacks.definition import base


class Requirement(TypedDict):
    """One expression of a label selector."""

    key: base.LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: NotRequired[Sequence[base.LabelValue]]


class LabelSelector(TypedDict):
    """Labels that objects carry."""

    matchLabels: NotRequired[Mapping[base.LabelKey, base.LabelValue]]
    matchExpressions: NotRequired[Sequence[Requirement]]


# `except` is a word of Python's own.
_IpBlock = TypedDict("_IpBlock", {"cidr": base.Cidr, "except": NotRequired[Sequence[base.Cidr]]})


class IpBlock(_IpBlock):
    """An address range, and what of it is left out."""


class NetworkPolicyPeer(TypedDict):
    """Pods by their labels and their namespace's, or addresses."""

    podSelector: NotRequired[LabelSelector]
    namespaceSelector: NotRequired[LabelSelector]
    ipBlock: NotRequired[IpBlock]
