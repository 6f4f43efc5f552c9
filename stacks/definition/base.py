"""What every part of the definition is made of: the strict base model and the field types that several parts share."""

import functools
import ipaddress
import re
from collections.abc import Mapping
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


class Section(BaseModel):
    """A part of the definition: camelCase keys, no unknown ones, no silent conversion of types."""

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
"""Beside the type of a key: the values of the chart do not have it, because resolving uses it up."""
Part = TypeVar("Part", bound=Section)


def copy_as(kind: type[Part], part: Section, **more: Any) -> Part:
    """Return a part of the definition as one of another class that has its keys, and what `more` says beside them.

    Nothing is validated again: the part has been, and the rest is computed.
    """
    return cast("Part", kind.model_construct(**{**dict(part), **more}))


_NOTHING: tuple[Any, ...] = (None, (), [], {})


@dataclass(frozen=True)
class Condition:
    """What some keys of a section ask of others. JSON schemas can say it: it is said to them and to people alike."""

    name: str
    """What it asks, as the name of a rule."""
    why: str
    """What is wrong where it does not hold."""
    needs: tuple[str, ...] = ()
    """One of these keys is given, and not empty."""
    forbids: tuple[str, ...] = ()
    """None of these keys is."""
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """It is asked where each of these keys has one of these values (None: it is not said), or is given, with ()."""

    def is_broken(self, part: Mapping[str, Any]) -> bool:
        """Say whether it does not hold of a section, as it is written or with its defaults."""
        given = {key for key, value in part.items() if value not in _NOTHING}
        if all(part.get(key) in values if values else key in given for key, values in self.when.items()):
            return bool(given.intersection(self.forbids)) or bool(self.needs and not given.intersection(self.needs))
        return False

    def schema(self) -> dict[str, Any]:
        """Return the same in draft-07; null and what is empty count as not given."""
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
        """Return the conditions that this class brings in itself."""
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
    """Beside a text, or a mapping with texts as keys: none may have a part that the pattern matches.

    It is a pattern of its own, since the engines that read schemas look neither ahead nor behind.
    """

    pattern: str
    why: str
    """Follows the text that is refused."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check after everything else."""
        return core_schema.no_info_after_validator_function(self.checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Say the same in a schema."""
        made = handler(schema)
        if made["type"] == "object":
            refused = {"description": self.why, "not": {}}
            return {**made, "patternProperties": {**made.get("patternProperties", {}), self.pattern: refused}}
        text = {"description": self.why, "type": "string", "pattern": self.pattern}
        return {**made, "not": {"anyOf": [made["not"], text]} if "not" in made else text}

    def checked(self, value: Any) -> Any:
        """Return a text or mapping as it is; raises ValueError."""
        for text in [value] if isinstance(value, str) else value:
            if re.search(self.pattern, text):
                raise ValueError(f"{text!r} {self.why}")
        return value


def without_ours(*names: str) -> Without:
    """Refuse variables that are set for every container, and those of some, as patterns."""
    return Without(f"^({'|'.join(('HOME', *names))})$", "is a variable that Tidegate sets itself")


CHOOSES_GPUS: Final = Without(
    "^NVIDIA_VISIBLE_DEVICES$",
    "can let a container see every GPU of its node: placement chooses GPUs, and containers without one see none",
)


def form(pattern: str, hint: str, *, min_length: int | None = None, max_length: int | None = None) -> Any:
    """Return what stands beside the type of a text: the pattern that it matches, and in words what is expected.

    Editors show `patternErrorMessage` when the pattern fails.
    """
    expected = f"Expected {hint if ' ' in hint else 'a text such as ' + hint}."
    extra = {"hint": hint, "patternErrorMessage": expected}
    return Field(pattern=pattern, json_schema_extra=dict(extra), min_length=min_length, max_length=max_length)


_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DNS = "lower-case letters, digits and dashes, at most 63, no dash at either end"
DnsLabel = Annotated[str, form(f"^{_LABEL}$", _DNS)]


class Named(Section):
    """A list item that overlays find by its name."""

    name: DnsLabel
    """Its name: lower-case letters, digits and dashes (a DNS label, RFC 1123)."""


class Renamable(Named):
    """A list item that may be given another name: what was made of it keeps the name that it was made under."""

    formerly: Annotated[tuple[DnsLabel, ...], NOT_IN_VALUES] = ()
    """Names that it had before, the oldest first: its objects in a cluster keep that one."""

    @property
    def made_as(self) -> str:
        """The name that its objects have."""
        return self.formerly[0] if self.formerly else self.name


_LETTER_FIRST = "lower-case letters, digits and dashes, with a letter first, as Services want it"
ServiceLabel = Annotated[str, form(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$", _LETTER_FIRST)]
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
ObjectName = Annotated[
    str,
    form(rf"^{_SUBDOMAIN}$", "a Kubernetes object name: lower-case letters, digits, dashes and dots", max_length=253),
]
LABEL_TEXT = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = rf"^({_SUBDOMAIN}/)?{LABEL_TEXT}$"
LabelKey = Annotated[
    str, form(_LABEL_KEY, "a Kubernetes label key, such as app or example.com/team", max_length=253 + 1 + 63)
]
_VALUE = "a Kubernetes label value: at most 63 letters, digits, dashes, dots and underscores"
LabelValue = Annotated[str, form(f"^({LABEL_TEXT})?$", _VALUE)]
Labels = dict[LabelKey, LabelValue]
Annotations = dict[LabelKey, str]
_OUR_ANNOTATIONS = (
    r"^(tidegate\.dev/|helm\.sh/resource-policy$|argocd\.argoproj\.io/sync-options$"
    r"|kustomize\.toolkit\.fluxcd\.io/prune$)"
)
ForeignAnnotations = Annotated[Annotations, Without(_OUR_ANNOTATIONS, "is an annotation that Tidegate sets itself")]
EnvironmentName = Annotated[
    str, form(r"^[A-Za-z_][A-Za-z0-9_]*$", "a name of an environment variable: letters, digits and underscores")
]
Port = Annotated[int, Field(ge=1, le=65535)]
Percent = Annotated[str, form(r"^(\d|[1-9]\d)(\.\d{1,3})?$", 'a text, such as "99.9", of a percentage below 100')]
Seconds = Annotated[int, Field(ge=1, le=86_400)]
Text = Annotated[str, form(r"^\S(.*\S)?$", "one line of text, without white space at either end", min_length=1)]
HTTP_URL = r"^https?://[^\s/?#@]+(/[^\s?#]*)?$"
HttpPath = Annotated[
    str,
    form(proxy_process.PATH_PATTERN, "a path such as / or /inference, with no slash at its end, and no step . or .."),
]


_BELOW = "must be a path below the volume's root, without . or .. and without a slash at its start"
RelativePath = Annotated[
    str,
    form(r"^[A-Za-z0-9._/-]+$", "a path below the volume's root: letters, digits, dots, dashes, underscores, slashes"),
    Without(r"(^|/)(\.\.?)?(/|$)", _BELOW),
]
Host = Annotated[
    str,
    form(rf"^{_LABEL}(\.{_LABEL})*$", "a host name such as inference.example.com", max_length=253),
    Without(r"^[0-9.]+$", "is an address, and a host name is wanted"),
]


def address(host: str) -> str:
    """Return a host as it is; raises ValueError for one that looks like an address, and is none."""
    if re.fullmatch(r"[0-9.]+|.*:.*", host):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError(f"{host!r} is neither a host name nor an address, such as 10.0.0.5") from None
    return host


HostOrAddress = Annotated[
    str,
    form(rf"^({_LABEL}(\.{_LABEL})*|[0-9a-f:.]*:[0-9a-f:.]*)$", "nfs.example.com or 10.0.0.5", max_length=253),
    AfterValidator(address),
]


def _network(cidr: str) -> str:
    network = ipaddress.ip_network(cidr)
    if getattr(network.network_address, "scope_id", None) or str(network) != cidr:
        raise ValueError(f"{cidr!r} is not how Kubernetes writes an address range; write {str(network)!r}")
    return cidr


Cidr = Annotated[str, AfterValidator(_network), Field(json_schema_extra={"examples": ["10.0.0.0/8"]})]

_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")
FACTORS: dict[str | None, int | Decimal] = {
    None: 1,
    "m": Decimal("0.001"),
    **{suffix: 1000**power for power, suffix in enumerate("kMGTP", 1)},
    **{f"{suffix}i": 1024**power for power, suffix in enumerate("KMGTP", 1)},
}

MOST_NUMBER = 2**53
"""Beyond it a number in JSON is another one to those that read it as a floating-point number, as Helm does."""
LEAST_BYTES = 2**20


@functools.lru_cache(maxsize=4096)
def quantity_value(quantity: str) -> Decimal:
    """Return a Kubernetes quantity as a number in its base unit (cores or bytes): `500m` is 0.5, `1Ki` is 1024.

    Raises ValueError when it is none.
    """
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        near = _QUANTITY.fullmatch(re.sub(r"\s|B(ytes?)?$", "", quantity))
        guess = f": did you mean {near[0]}?" if near else ""
        raise ValueError(f"{quantity!r} is no Kubernetes quantity, such as 500m, 2 or 16Gi{guess}")
    return Decimal(match[1]) * FACTORS[match[2]]


def byte_count(quantity: str) -> int:
    """Return a Kubernetes quantity of memory or storage in whole bytes."""
    return int(quantity_value(quantity))


def _positive_value(quantity: str) -> Decimal:
    value = quantity_value(quantity)
    if value <= 0:
        raise ValueError(f"{quantity!r} must be more than nothing")
    if value > MOST_NUMBER:
        raise ValueError(f"{quantity!r} is more than every reader of JSON can count, 2^53 (8Pi)")
    return value


def _whole_millicores(quantity: str) -> str:
    if _positive_value(quantity) % Decimal("0.001"):
        raise ValueError(f"{quantity!r} is finer than a thousandth of a core, which Kubernetes does not know")
    return quantity


def _whole_bytes(quantity: str) -> str:
    value = _positive_value(quantity)
    if value < LEAST_BYTES:
        raise ValueError(f"{quantity!r} is {int(value)} bytes: is a unit missing, as in 2Gi or 512Mi?")
    if value != int(value):
        raise ValueError(f"{quantity!r} is not a whole number of bytes")
    return quantity


def _quantity(*examples: str) -> Any:
    wanted = f"Expected a Kubernetes quantity, such as {' or '.join(examples)}."
    said = {"pattern": _QUANTITY.pattern, "patternErrorMessage": wanted}
    return Field(max_length=24, json_schema_extra={**said, "examples": list(examples)})


CpuQuantity = Annotated[str, AfterValidator(_whole_millicores), _quantity("500m", "2")]
ByteQuantity = Annotated[str, AfterValidator(_whole_bytes), _quantity("512Mi", "16Gi")]


def replicas_or_autoscaling(owner: Any) -> Any:
    """An autoscaler owns the number of replicas."""
    if owner.replicas is None or owner.autoscaling is None:
        return owner
    raise ValueError(
        "replicas and autoscaling cannot stand together: the autoscaler owns the number of replicas; "
        "in an overlay, `replicas: null` takes the inherited number away"
    )


_LEAST_MEMORY = 16 * 2**20


class Resources(Section):
    """What a container asks of its node. The memory limit equals the request, so that nobody is evicted for it."""

    cpu: CpuQuantity = "1"
    """CPU cores asked for."""
    memory: ByteQuantity = "512Mi"
    """Memory asked for, and its limit."""
    cpu_limit: CpuQuantity | None = None
    """CPU cores at the most; none by default, so that spare cores are used."""

    @model_validator(mode="after")
    def _memory_is_enough_for_a_process(self) -> Self:
        if byte_count(self.memory) < _LEAST_MEMORY:
            raise ValueError(f"memory {self.memory} is less than any process needs: is a unit missing, as in 16Gi?")
        return self

    @model_validator(mode="after")
    def _limit_is_at_least_the_request(self) -> Self:
        """A container may not be held below what it asks for."""
        if self.cpu_limit is not None and quantity_value(self.cpu_limit) < quantity_value(self.cpu):
            raise ValueError(f"cpuLimit {self.cpu_limit} is less than cpu {self.cpu}, which is asked for")
        return self


class ServerResources(Resources):
    """What each replica of a server asks of its node. The memory limit equals the request."""

    cpu: CpuQuantity = "2"
    """CPU cores asked for."""
    memory: ByteQuantity = "8Gi"
    """Memory asked for, and its limit; /dev/shm counts against it."""


class PolicyResources(Resources):
    """What an eviction policy asks of its node. The memory limit equals the request."""

    cpu: CpuQuantity = "100m"
    """CPU cores asked for."""
    memory: ByteQuantity = "256Mi"
    """Memory asked for, and its limit."""


class ReplicaBounds(Section):
    """Between how many replicas an autoscaler may choose."""

    min: Annotated[int, Field(ge=1, le=1000)]
    """Replicas at the least."""
    max: Annotated[int, Field(ge=1, le=1000)]
    """Replicas at the most."""

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        """An autoscaler's min is at most its max."""
        if self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")
        return self


class CpuScaling(ReplicaBounds):
    """Replicas follow CPU use."""

    kind: Literal["cpu"] = "cpu"
    """Kind of the autoscaler."""
    cpu_percent: Annotated[int, Field(ge=1, le=100)] = 70
    """CPU use, in per cent of what is asked for, that the autoscaler aims at."""
