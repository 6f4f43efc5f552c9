"""The document that --json writes, and its schema: `python -m rollout.json_document`, by `make docs`.

Within one `format`, fields may be added, but none is removed, renamed or given another meaning.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

from stacks.definition.money import HOURS_A_MONTH, Cost
from stacks.problems import Position

from .changes.compare import FieldChange, Verb
from .changes.permissions import Grant
from .changes.report import values
from .changes.restarts import Notice, Restart
from .changes.stack_change import Devices, StackChange, State, findings_of
from .seen import CommandReport
from .waves.plan import Step

Level = Literal["error", "advisory", "waived"]


class _Json(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        from_attributes=True,
        frozen=True,
        use_attribute_docstrings=True,
    )


class _Place(_Json):
    file: str = ""
    """File to edit. Empty if there is none."""
    line: int | None = None
    """For findings about an object or a cluster, the line of its environment."""
    column: int | None = None


class Found(_Place):
    """One error, warning or waiver."""

    level: Level
    """`error` fails the command."""
    source: Literal["definition", "guardrail", "cluster"]
    """A rule of the definition, a guardrail, or the state of the cluster."""
    stacks: tuple[str, ...] = ()
    """Stacks that have it. Empty if it concerns the definition itself."""
    rule: str = ""
    """Name of the guardrail."""
    path: str = ""
    """Place in the definition, such as `servers[small].pools[main].replicas`."""
    object: str = ""
    """Kind and name, as `Deployment/inference-proxy`."""
    namespace: str = ""
    """Of the object."""
    what: str
    why: str = ""
    """Why it matters. For a waiver: by whom, until when and why."""
    do: str = ""
    """The remedy."""
    command: str = ""
    """kubectl command that shows it."""
    new: bool | None = None
    """Whether the change introduces it. Null if nothing is compared."""


def _in_words(fields: Iterable[FieldChange]) -> tuple[str, ...]:
    return tuple(f"{field.place} {values(field)}" for field in fields)


class ChangedObject(_Json):
    """One object that differs."""

    verb: Verb
    kind: str
    namespace: str
    name: str
    fields: Annotated[tuple[str, ...], BeforeValidator(_in_words)]
    """Each with its values before and after, shortened. Never a secret."""
    immutable: tuple[str, ...]
    """Fields that force a replacement of the object."""


class Month(_Json):
    """Cost of a stack's GPU devices in a month of 730 hours, with autoscalers at their maximum."""

    before: float | None
    """Money. Null if a device has no price."""
    after: float | None
    difference: float | None
    currency: str
    device_hours_before: int
    device_hours_after: int


class SeenStack(_Place):
    """One stack, and its changes. A stack that is no longer described has only a name."""

    name: str
    environment: str = ""
    data_plane: str = ""
    context: str = ""
    """The kubeconfig context."""
    production: bool | None = None
    state: State | None = None
    """The change. Null if nothing is compared."""
    stays: str = ""
    """If the stack is no longer described: the part of it that still exists."""
    down: str = ""
    """The command that removes that part. Empty if there is none."""
    weaker: tuple[str, ...] = ()
    """Access that it newly allows, and requirements that it drops: sentences without a subject."""
    lost: tuple[str, ...] = ()
    """Permissions of callers and teams that the change removes: sentences without a subject."""
    stricter: tuple[str, ...] = ()
    """New requirements, and raised limits: sentences without a subject."""
    grants: tuple[Grant, ...] = ()
    """New permissions to call models. `wider`: they include models that were served before."""
    objects: tuple[ChangedObject, ...] = ()
    restarts: tuple[Restart, ...] = ()
    notices: tuple[Notice, ...] = ()
    """Effects without a restart. `grave`: as bad as a deletion."""
    devices: tuple[Devices, ...] = ()
    """GPU devices before and after, with autoscalers at their maximum, and the devices of the data plane."""
    month: Month | None = None
    """Null if nothing is compared."""


class Document(_Json):
    """The findings of a command."""

    format: Literal[2] = 2
    command: str
    definition: str
    """File of the definition."""
    exit_code: int
    failure: str
    """The final error message of a failed command."""
    against: str
    """The base of a preview's comparison."""
    verdict: str
    """The change in one line."""
    notes: tuple[str, ...]
    """Remarks on a comparison: objects that a cluster would refuse, and renamed parts."""
    findings: tuple[Found, ...]
    stacks: tuple[SeenStack, ...]
    steps: tuple[Step, ...]
    """The data planes of a rollout, in groups that are applied together."""


def document_text(seen: CommandReport, code: int, failure: str) -> str:
    """Return the document for a report, with the command's exit code and its final message."""
    ends = {"definition": seen.file, "exit_code": code, "failure": failure}
    found = Document(**{**vars(seen), **ends, "findings": tuple(_findings(seen)), "stacks": tuple(_stacks(seen))})
    return json.dumps(found.model_dump(by_alias=True), indent=2)  # in ASCII, because a file name may not be valid UTF-8


def _findings(seen: CommandReport) -> Iterator[Found]:
    for problem in (*seen.problems, *(seen.definition.advisories if seen.definition else ())):
        where = problem.where._asdict() if isinstance(problem.where, Position) else {"file": problem.file}
        yield Found(level=problem.severity, source="definition", **{**vars(problem), **where, "rule": ""})
    judged = [StackChange(name, "unchanged", (), (), (), (), found, found) for name, found in seen.guardrails.items()]
    for finding, is_new, stacks in findings_of(seen.changes or judged):
        level: Level = "error" if finding.severity == "mandatory" else finding.severity
        fields = {
            **vars(finding),
            "object": finding.object,
            "why": finding.waiver or finding.why,
            "stacks": tuple(stacks),
        }
        new = is_new if seen.changes else None
        yield Found(level=level, source="guardrail", new=new, **fields, **_place(seen, stacks[0]))
    for name, lacks in seen.lacks.items():
        for lack in lacks:
            level = "error" if lack.hard else "advisory"
            yield Found(level=level, source="cluster", stacks=(name,), **vars(lack), **_place(seen, name))


def _place(seen: CommandReport, name: str) -> dict[str, Any]:
    for stack in seen.definition.stacks if seen.definition else ():
        if stack.name == name and seen.definition:
            index = seen.definition.header.environments.index(stack.environment)
            return seen.definition.document.position(("environments", index))._asdict()
    return {}


def _stacks(seen: CommandReport) -> Iterator[SeenStack]:
    known = {stack.name: stack for stack in seen.stacks or (seen.definition.stacks if seen.definition else ())}
    changes = {change.name: change for change in seen.changes}
    for name in changes or known:
        fields = _place(seen, name)
        if stack := known.get(name):
            fields |= {"environment": stack.environment.name, "production": stack.environment.production}
            fields |= {"data_plane": stack.data_plane.name, "context": stack.data_plane.context_name}
        if change := changes.get(name):
            fields |= {**vars(change), **change.permissions._asdict(), "month": change.costs and _month(*change.costs)}
        yield SeenStack(**{**fields, "name": name})


def _month(before: Cost, after: Cost) -> Month:
    was, now = (None if each.month is None else round(each.month, 2) for each in (before, after))
    return Month(
        before=was,
        after=now,
        difference=None if was is None or now is None else round(now - was, 2),
        currency=after.currency,
        device_hours_before=before.devices * HOURS_A_MONTH,
        device_hours_after=after.devices * HOURS_A_MONTH,
    )


def schema_text() -> str:
    """Return the JSON schema of the document."""
    schema = Document.model_json_schema(by_alias=True, mode="serialization")
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
