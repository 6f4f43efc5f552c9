"""The strict base model of the definition, and the field types that several parts share."""

import difflib
import functools
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema
from tidegate_contracts import proxy_process

from policies.guardrails.checking import printable


class Section(BaseModel):
    """A part of the definition: camelCase keys, no unknown keys, no conversion of types."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
        use_attribute_docstrings=True,
        validate_by_name=False,
        validate_by_alias=True,
    )


NOT_IN_VALUES: Final = "not in values"
"""Annotation of a key that the values of the chart do not have, because resolving consumes it."""
Part = TypeVar("Part", bound=Section)


def copy_as(kind: type[Part], part: Section, **more: Any) -> Part:
    """Return a part of the definition as another class with the same keys and those of `more`, without validation."""
    return cast("Part", kind.model_construct(**{**dict(part), **more}))


_NOTHING: tuple[Any, ...] = (None, (), [], {})


@dataclass(frozen=True)
class Condition:
    """A dependency between keys of a section. Validation and JSON schemas both apply it."""

    name: str
    """Name, in the form of a rule's function."""
    why: str
    """The message if it does not hold."""
    needs: tuple[str, ...] = ()
    """At least one of these keys is set and not empty."""
    forbids: tuple[str, ...] = ()
    """None of these keys is set."""
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The condition applies if each key has one of its values. None means not set, and () means any value."""

    def is_broken(self, part: Mapping[str, Any]) -> bool:
        """Return whether a section, with or without its defaults, breaks the condition."""
        given = {key for key, value in part.items() if value not in _NOTHING}
        if all(part.get(key) in values if values else key in given for key, values in self.when.items()):
            return bool(given.intersection(self.forbids)) or bool(self.needs and not given.intersection(self.needs))
        return False

    def schema(self) -> dict[str, Any]:
        """Return the condition as JSON schema (draft-07). Null and empty values count as not set."""
        nothing: dict[str, Any] = {"enum": [None, [], {}]}
        then: dict[str, Any] = {"properties": dict.fromkeys(self.forbids, nothing)} if self.forbids else {}
        if self.needs:
            then["anyOf"] = [{"required": [key], "properties": {key: {"not": nothing}}} for key in self.needs]
        if not self.when:
            return {"description": self.why, **then}
        tests = {key: {"enum": list(values)} if values else {"not": nothing} for key, values in self.when.items()}
        required = [key for key, values in self.when.items() if None not in values]
        return {"description": self.why, "if": {"required": required, "properties": tests}, "then": then}


class Conditional(Section):
    """A section with conditions."""

    conditions: ClassVar[tuple[Condition, ...]] = ()

    @classmethod
    def own_conditions(cls) -> list[Condition]:
        """Return the conditions that this class adds to its base classes."""
        inherited = [each for base in cls.__bases__ for each in getattr(base, "conditions", ())]
        return [each for each in cls.conditions if each not in inherited]

    @model_validator(mode="after")
    def _conditions_hold(self) -> Self:
        part = {str(field.alias): getattr(self, name) for name, field in type(self).model_fields.items()}
        for condition in self.conditions:
            if condition.is_broken(part):
                raise ValueError(condition.why)
        return self


@dataclass(frozen=True)
class Without:
    """Annotation of a text, or of a mapping: no text or key may contain a match of the pattern. It is a separate
    pattern because regular expressions of JSON schemas have no lookahead."""

    pattern: str
    why: str
    """The message, which follows the refused text."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check after all other validators."""
        return core_schema.no_info_after_validator_function(self.checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the same check as JSON schema."""
        made = handler(schema)
        if made["type"] == "object":
            refused = {"description": self.why, "not": {}}
            return {**made, "patternProperties": {**made.get("patternProperties", {}), self.pattern: refused}}
        text = {"description": self.why, "type": "string", "pattern": self.pattern}
        return {**made, "not": {"anyOf": [made["not"], text]} if "not" in made else text}

    def checked(self, value: Any) -> Any:
        """Return a text or mapping unchanged. Raises ValueError."""
        for text in [value] if isinstance(value, str) else value:
            if re.search(self.pattern, text):
                raise ValueError(f"{text!r} {self.why}")
        return value


def without_ours(*names: str) -> Without:
    """Refuse the variables that Tidegate sets: those of every container, and these patterns."""
    return Without(f"^({'|'.join(('HOME', *names))})$", "is a variable that Tidegate sets itself")


CHOOSES_GPUS: Final = Without(
    "^NVIDIA_VISIBLE_DEVICES$",
    "can let a container see every GPU of its node: placement chooses GPUs, and containers without one see none",
)


def form(
    pattern: str, hint: str, name: str = "", *, min_length: int | None = None, max_length: int | None = None
) -> Any:
    """Return the annotation of a text: its pattern, its form in words, and the format's name in the reference. Editors
    show `patternErrorMessage` if the pattern does not match."""
    expected = f"Expected {hint if ' ' in hint else 'a text such as ' + hint}."
    extra = {"hint": hint, "patternErrorMessage": expected} | ({"formatName": name} if name else {})
    return Field(pattern=pattern, json_schema_extra=dict(extra), min_length=min_length, max_length=max_length)


_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DNS = "lower-case letters, digits and dashes, at most 63, no dash at either end"
DnsLabel = Annotated[str, form(f"^{_LABEL}$", _DNS, "DNS label")]


class Named(Section):
    """A list item that overlays merge by its name."""

    name: DnsLabel
    """Unique name."""


class Renamable(Named):
    """A list item that you can rename: its objects keep their first name."""

    formerly: Annotated[tuple[DnsLabel, ...], NOT_IN_VALUES] = ()
    """Former names, oldest first. Objects keep the oldest."""

    @property
    def made_as(self) -> str:
        return self.formerly[0] if self.formerly else self.name


_LETTER_FIRST = "lower-case letters, digits and dashes, with a letter first, at most 63"
ServiceLabel = Annotated[str, form(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$", _LETTER_FIRST, "Service name")]
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
ObjectName = Annotated[
    str,
    form(
        rf"^{_SUBDOMAIN}$",
        "lower-case letters, digits, dashes and dots, at most 253",
        "object name",
        max_length=253,
    ),
]
LABEL_TEXT = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = rf"^({_SUBDOMAIN}/)?{LABEL_TEXT}$"
LabelKey = Annotated[
    str,
    form(_LABEL_KEY, "a key such as app or example.com/team", "label key", max_length=253 + 1 + 63),
]
_VALUE = "at most 63 letters, digits, dashes, dots and underscores"
LabelValue = Annotated[str, form(f"^({LABEL_TEXT})?$", _VALUE, "label value")]
Labels = dict[LabelKey, LabelValue]
Annotations = dict[LabelKey, str]
_OUR_ANNOTATIONS = (
    r"^(tidegate\.dev/|helm\.sh/resource-policy$|argocd\.argoproj\.io/sync-options$"
    r"|kustomize\.toolkit\.fluxcd\.io/prune$)"
)
ForeignAnnotations = Annotated[Annotations, Without(_OUR_ANNOTATIONS, "is an annotation that Tidegate sets itself")]
EnvironmentName = Annotated[
    str,
    form(r"^[A-Za-z_][A-Za-z0-9_]*$", "letters, digits and underscores, without a digit first", "variable name"),
]
Port = Annotated[int, Field(ge=1, le=65535)]
Percent = Annotated[
    str, form(r"^(0|([2-9]|[1-9]\d)(\.\d{1,3})?)$", 'a percentage in quotes from "2" to "99.999", or "0"', "percentage")
]
Seconds = Annotated[int, Field(ge=1, le=86_400)]
Text = Annotated[str, form(r"^\S(.*\S)?$", "one line of text, without white space at either end", "text", min_length=1)]
HTTP_URL = r"^https?://[^\s/?#@]+(/[^\s?#]*)?$"
HttpPath = Annotated[
    str,
    form(
        proxy_process.PATH_PATTERN,
        "/ or a path such as /inference, without a final slash and without segments of dots",
        "URL path",
    ),
]


_BELOW = "must be a path below the volume's root, without . or .. and without a slash at its start"
RelativePath = Annotated[
    str,
    form(r"^[A-Za-z0-9._/-]+$", "a path below the volume's root: letters, digits, dots, dashes, underscores, slashes"),
    Without(r"(^|/)(\.\.?)?(/|$)", _BELOW),
]
Host = Annotated[
    str,
    form(rf"^{_LABEL}(\.{_LABEL})*$", "a host name such as inference.example.com", "host name", max_length=253),
    Without(r"^[0-9.]+$", "is an address instead of a host name"),
]


def address(host: str) -> str:
    """Return a host unchanged. Raises ValueError if it looks like an address but is not valid."""
    if re.fullmatch(r"[0-9.]+|.*:.*", host):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError(f"{host!r} is neither a host name nor an address, such as 10.0.0.5") from None
    return host


HostOrAddress = Annotated[
    str,
    form(
        rf"^({_LABEL}(\.{_LABEL})*|[0-9a-f:.]*:[0-9a-f:.]*)$",
        "a host name or an address, such as nfs.example.com",
        max_length=253,
    ),
    AfterValidator(address),
]


def _network(cidr: str) -> str:
    network = ipaddress.ip_network(cidr)
    if getattr(network.network_address, "scope_id", None) or str(network) != cidr:
        raise ValueError(f"{cidr!r} is not an address range in Kubernetes' notation: write {str(network)!r}")
    return cidr


Cidr = Annotated[
    str,
    AfterValidator(_network),
    Field(json_schema_extra={"examples": ["10.0.0.0/8"], "formatName": "address range"}),
]

_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")
FACTORS: dict[str | None, int | Decimal] = {
    None: 1,
    "m": Decimal("0.001"),
    **{suffix: 1000**power for power, suffix in enumerate("kMGTP", 1)},
    **{f"{suffix}i": 1024**power for power, suffix in enumerate("KMGTP", 1)},
}

MOST_NUMBER = 2**53
"""Larger numbers in JSON change if a program reads them as floating-point numbers, as Helm does."""
LEAST_BYTES = 2**20


def nearest(word: Any, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the choice most similar to `word`, or an empty string. idle_seconds and idleSeconds are equal here."""
    if not isinstance(word, str) or len(word) > 200:
        return ""
    ignored = re.compile(r"[_\-\s]")
    plain = {ignored.sub("", each).lower(): each for each in reversed([*choices])}  # of two equal choices, the first
    near = difflib.get_close_matches(ignored.sub("", word).lower(), plain, n=1, cutoff=cutoff)
    return plain[near[0]] if near else ""


def did_you_mean(near: str) -> str:
    """Return a question with a choice, followed by a space, or an empty string without one."""
    return f'Did you mean "{printable(near)}"? ' if near else ""


@functools.lru_cache(maxsize=4096)
def quantity_value(quantity: str) -> Decimal:
    """Return a Kubernetes quantity in cores or bytes: `500m` is 0.5, `1Ki` is 1024. Raises ValueError."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        near = _QUANTITY.fullmatch(re.sub(r"\s|B(ytes?)?$", "", quantity))
        guess = did_you_mean(near[0] if near else "")
        raise ValueError(f"{quantity!r} is not a Kubernetes quantity, such as 500m, 2 or 16Gi\n{guess}".rstrip())
    return Decimal(match[1]) * FACTORS[match[2]]


def byte_count(quantity: str) -> int:
    """Return a Kubernetes quantity of memory or storage in whole bytes."""
    return int(quantity_value(quantity))


def _positive_value(quantity: str) -> Decimal:
    value = quantity_value(quantity)
    if value <= 0:
        raise ValueError(f"{quantity!r} must be more than 0")
    if value > MOST_NUMBER:
        raise ValueError(f"{quantity!r} is more than 2^53 (8Pi), the limit of exact numbers in JSON")
    return value


def _whole_millicores(quantity: str) -> str:
    if _positive_value(quantity) % Decimal("0.001"):
        raise ValueError(f"{quantity!r} is not a multiple of 1m, the smallest part of a core in Kubernetes")
    return quantity


def _whole_bytes(quantity: str) -> str:
    value = _positive_value(quantity)
    if value < LEAST_BYTES:
        raise ValueError(f"{quantity!r} is {int(value)} bytes: is a unit missing, as in 2Gi or 512Mi?")
    if value != int(value):
        raise ValueError(f"{quantity!r} is not a whole number of bytes")
    return quantity


def _quantity(name: str, *examples: str) -> Any:
    expected = f"Expected a Kubernetes quantity, such as {' or '.join(examples)}."
    extra = {"pattern": _QUANTITY.pattern, "patternErrorMessage": expected, "formatName": name}
    return Field(max_length=24, json_schema_extra={**extra, "examples": list(examples)})


CpuQuantity = Annotated[str, AfterValidator(_whole_millicores), _quantity("CPU quantity", "500m", "2")]
ByteQuantity = Annotated[str, AfterValidator(_whole_bytes), _quantity("memory quantity", "512Mi", "16Gi")]


def replicas_or_autoscaling(owner: Any) -> Any:
    """Refuse replicas together with autoscaling."""
    if owner.replicas is None or owner.autoscaling is None:
        return owner
    raise ValueError(
        "replicas and autoscaling exclude each other, because the autoscaler sets the number of replicas: remove one "
        "(in an overlay, set `replicas: null`)"
    )


_LEAST_MEMORY = 16 * 2**20


class Resources(Section):
    """CPU and memory of a container. The memory limit equals the request, so the kubelet does not evict the pod."""

    cpu: CpuQuantity = "1"
    """CPU request."""
    memory: ByteQuantity = "512Mi"
    """Memory request and limit."""
    cpu_limit: CpuQuantity | None = None
    """CPU limit. Without one, the container can use spare cores."""

    @model_validator(mode="after")
    def _memory_is_enough_for_a_process(self) -> Self:
        if byte_count(self.memory) < _LEAST_MEMORY:
            raise ValueError(f"memory {self.memory} is less than any process needs: is a unit missing, as in 16Gi?")
        return self

    @model_validator(mode="after")
    def _limit_is_at_least_the_request(self) -> Self:
        if self.cpu_limit is not None and quantity_value(self.cpu_limit) < quantity_value(self.cpu):
            raise ValueError(f"cpuLimit {self.cpu_limit} is less than cpu {self.cpu}, the request")
        return self


class ServerResources(Resources):
    """CPU and memory of each replica of a server. The memory limit equals the request."""

    cpu: CpuQuantity = "2"
    """CPU request."""
    memory: ByteQuantity = "8Gi"
    """Memory request and limit, including /dev/shm."""


class PolicyResources(Resources):
    """CPU and memory of an eviction policy. The memory limit equals the request."""

    cpu: CpuQuantity = "100m"
    """CPU request."""
    memory: ByteQuantity = "256Mi"
    """Memory request and limit."""


class ReplicaBounds(Section):
    """The bounds of an autoscaler."""

    min: Annotated[int, Field(ge=1, le=1000)]
    """Fewest replicas."""
    max: Annotated[int, Field(ge=1, le=1000)]
    """Most replicas."""

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self


class CpuScaling(ReplicaBounds):
    """Scales by CPU use."""

    kind: Literal["cpu"] = "cpu"
    """Kind of the autoscaler."""
    cpu_percent: Annotated[int, Field(ge=1, le=100)] = 70
    """Target CPU use, in per cent of the request."""
