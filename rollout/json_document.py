"""The document that --json writes, and its schema: `python -m rollout.json_document`, by `make docs`.

Within a `format` fields may be added; none goes, is renamed or gets another meaning.
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
    """File that is to be edited; empty where there is none."""
    line: int | None = None
    """Of what concerns an object or a cluster, that of its environment."""
    column: int | None = None


class Found(_Place):
    """One thing that is wrong or worth knowing."""

    level: Level
    """`error` fails the command."""
    source: Literal["definition", "guardrail", "cluster"]
    """The definition's rules, a guardrail, or the cluster that was asked."""
    stacks: tuple[str, ...] = ()
    """Those that have it; none where the definition itself has it."""
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
    """Why it matters; of what is waived, by whom, until when and why."""
    do: str = ""
    """What to do about it."""
    command: str = ""
    """kubectl command that shows it."""
    new: bool | None = None
    """Whether the change brings it; null where nothing is compared."""


def _in_words(fields: Iterable[FieldChange]) -> tuple[str, ...]:
    return tuple(f"{field.place} {values(field)}" for field in fields)


class ChangedObject(_Json):
    """One object that differs."""

    verb: Verb
    kind: str
    namespace: str
    name: str
    fields: Annotated[tuple[str, ...], BeforeValidator(_in_words)]
    """Each with its values before and after, shortened; never a secret."""
    immutable: tuple[str, ...]
    """Fields that make a replacement of it."""


class Month(_Json):
    """What the GPU devices of a stack cost a month of 730 hours, autoscalers at their most."""

    before: float | None
    """Money; null where a device has no price."""
    after: float | None
    difference: float | None
    currency: str
    device_hours_before: int
    device_hours_after: int


class SeenStack(_Place):
    """One stack, and how it changes; one that is no longer described has only a name."""

    name: str
    environment: str = ""
    data_plane: str = ""
    context: str = ""
    """Of the kubeconfig."""
    production: bool | None = None
    state: State | None = None
    """How it changes; null where nothing is compared."""
    stays: str = ""
    """Of one that is no longer described: what of it is still there."""
    down: str = ""
    """The command that takes that down; empty where there is none."""
    weaker: tuple[str, ...] = ()
    """What it newly allows or no longer asks for: sentences without a subject."""
    lost: tuple[str, ...] = ()
    """Permissions of callers and teams that the change takes away: sentences without a subject."""
    stricter: tuple[str, ...] = ()
    """New demands, and limits that are raised: sentences without a subject."""
    grants: tuple[Grant, ...] = ()
    """Who may newly call what; `wider`: among it are models that were served before."""
    objects: tuple[ChangedObject, ...] = ()
    restarts: tuple[Restart, ...] = ()
    notices: tuple[Notice, ...] = ()
    """What happens without a restart; `grave`: as bad as a deletion."""
    devices: tuple[Devices, ...] = ()
    """GPU devices before and after, autoscalers at their most, and those that its data plane has."""
    month: Month | None = None
    """Null where nothing is compared."""


class Document(_Json):
    """What a command has found."""

    format: Literal[2] = 2
    command: str
    definition: str
    """Its file."""
    exit_code: int
    failure: str
    """What a command that failed says last, as people read it."""
    against: str
    """What a preview compares with."""
    verdict: str
    """What changes, in a line."""
    notes: tuple[str, ...]
    """What else must be known of a comparison: what a cluster would refuse, what moves to another name."""
    findings: tuple[Found, ...]
    stacks: tuple[SeenStack, ...]
    steps: tuple[Step, ...]
    """Of a rollout, with the data planes that go together."""


def document_text(seen: CommandReport, code: int, failure: str) -> str:
    """Return the document of what a command has seen, with the exit code and the message that it ends with."""
    ends = {"definition": seen.file, "exit_code": code, "failure": failure}
    found = Document(**{**vars(seen), **ends, "findings": tuple(_findings(seen)), "stacks": tuple(_stacks(seen))})
    return json.dumps(found.model_dump(by_alias=True), indent=2)  # in ASCII: a file's name may be no text


def _findings(seen: CommandReport) -> Iterator[Found]:
    for problem in (*seen.problems, *(seen.definition.advisories if seen.definition else ())):
        where = problem.where._asdict() if isinstance(problem.where, Position) else {"file": problem.file}
        yield Found(level=problem.severity, source="definition", **{**vars(problem), **where, "rule": ""})
    judged = [StackChange(name, "unchanged", (), (), (), (), found, found) for name, found in seen.guardrails.items()]
    for finding, is_new, stacks in findings_of(seen.changes or judged):
        level: Level = "error" if finding.severity == "mandatory" else finding.severity
        said = {
            **vars(finding),
            "object": finding.object,
            "why": finding.waiver or finding.why,
            "stacks": tuple(stacks),
        }
        new = is_new if seen.changes else None
        yield Found(level=level, source="guardrail", new=new, **said, **_place(seen, stacks[0]))
    for name, lacks in seen.lacks.items():
        for lack in lacks:
            level = "error" if lack.hard else "advisory"
            yield Found(level=level, source="cluster", stacks=(name,), **vars(lack), **_place(seen, name))


def _place(seen: CommandReport, name: str) -> dict[str, Any]:
    """Return where the environment of a stack stands in the definition."""
    for stack in seen.definition.stacks if seen.definition else ():
        if stack.name == name and seen.definition:
            index = seen.definition.header.environments.index(stack.environment)
            return seen.definition.document.position(("environments", index))._asdict()
    return {}


def _stacks(seen: CommandReport) -> Iterator[SeenStack]:
    known = {stack.name: stack for stack in seen.stacks or (seen.definition.stacks if seen.definition else ())}
    changes = {change.name: change for change in seen.changes}
    for name in changes or known:
        said = _place(seen, name)
        if stack := known.get(name):
            said |= {"environment": stack.environment.name, "production": stack.environment.production}
            said |= {"data_plane": stack.data_plane.name, "context": stack.data_plane.context_name}
        if change := changes.get(name):
            said |= {**vars(change), **change.permissions._asdict(), "month": change.costs and _month(*change.costs)}
        yield SeenStack(**{**said, "name": name})


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
