"""Brings a registered version into an environment: deploy, promote and rollback are this, under different rules.

Every step can be done again, and a step that was done costs a look. Until calls go to the new version everywhere, every
failure puts the configurations back; a run that is killed leaves the old version serving beside the new one, and the
next run goes on.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

from tidegate_contracts.environments import ALIAS_RULE, Environment, is_alias
from tidegate_contracts.manifest import Manifest
from tidegate_contracts.message import Message

from ..errors import BusyError, IntegrityError, TidegateError, UnfinishedError, UsageError
from ..failures import plain, scrubbed
from ..registry import Record, RegisteredVersion
from .checks import check_fits, check_staged, refuse
from .context import Context
from .plan import History, Plan, make_plan, published_entry_config, registered_config
from .ready import answers, until_called, until_served
from .rules import BRINGS, Operation, before, current
from .target import Placement, targets


class Outcome(Message):
    """The result of deploy, promote, rollback or undeploy."""

    what: Operation
    model: str
    version: int
    environment: str
    previous: int | None  # the version that the environment had before
    changed: bool  # whether anything was to be done
    who: str
    planes: tuple[str, ...]
    notes: tuple[str, ...] = ()  # what is worth knowing all the same


def publish_version(
    context: Context, what: Operation, version: RegisteredVersion, of: Environment, who: str
) -> Outcome:
    """Bring a version, which the rules allow, into an environment; it serves everywhere when this returns.

    Raises TidegateError: BusyError where another publisher is at it, UnfinishedError where it came to nothing half way.
    """
    registry, model, number = context.registry, version.model, version.number
    if not is_alias(of.name):
        cannot = f"no version can be recorded in {of.name}"
        do = "have the platform admin give the environment another name, and `formerly` with this one"
        raise UsageError(cannot, why=ALIAS_RULE, do=do)
    everywhere = targets(of, model)
    manifest = registry.manifest(version)
    if context.public_key is not None:
        registry.verify_signature(version, context.public_key)
    entry_config = registered_config(registry, version, manifest, everywhere[0].kind.configs.CONFIG)
    repositories = {target.key: context.repository(target.homes[0]) for target in everywhere}
    with ExitStack() as locks:
        for key in sorted(repositories):
            locks.enter_context(repositories[key].lock(model, who))
        expected = context.alias(model, of.name)
        if of.formerly and expected is not None and registry.alias(model, of.name) != expected:
            # The alias of its former name stays; under this name there is none yet.
            registry.set_alias(model, of.name, expected, expect=None)
        records = context.records(model)
        ever = frozenset(each.version for each in records if each.what in BRINGS and each.environment == of.name)
        plans = []
        for target in everywhere:
            had = History(current(records, of.name, target.homes[0].plane.name), ever, expected)
            plans.append(make_plan(target, repositories[target.key], number, entry_config, had))
        run = _Run(context, version, manifest, of, plans)
        if expected not in (None, number, recorded := current(records, of.name)):
            has = "no version" if recorded is None else f"version {recorded}"
            by_hand = f"the alias {of.name} of {model} was at version {expected} before, and the records say {has}"
            run.notes.append(f"{by_hand}: find out who moved it")
        changed = any(plan.now != plan.last for plan in plans)
        to_do = changed or any(current(records, of.name, home.plane.name) != number for _, home in run.homes)
        locks.enter_context(attempted(context, what, version, of, who) if to_do else nullcontext())
        for plan in plans:
            run.check(plan, entry_config)
        what_failed = f"version {number} of {model} did not come into {of.name}"
        if not to_do:
            what_failed = f"{of.name} has version {number} of {model} already, and it was not seen to be called"
        ways_back = {plan.repository.where: plan.put_back for plan in plans}
        with put_back_on_failure(context, what_failed, ways_back, run.notes):
            if changed:
                for plan in plans:
                    run.publish(plan)
            # Also where a run that was killed had written the last configuration: it may have seen no answer.
            if to_do:
                run.try_out()
                run.check_alias(expected)
            for plan in plans:
                plan.repository.write_config(model, plan.last)
            for _, home in run.homes:
                until_called(context, home, number)
        with run.told_on_failure():
            if expected != number:
                registry.set_alias(model, of.name, number, expect=expected)
            previous = run.write_down(what, who, records)
    return Outcome(
        what=what, model=model, version=number, environment=of.name, who=who,
        previous=previous if previous != number else before(records, of.name, number),
        changed=changed or previous != number,
        planes=tuple(home.plane.name for _, home in run.homes),
        notes=tuple(dict.fromkeys([*run.notes, *run.unserved()])),
    )  # fmt: skip


@dataclass
class _Run:
    """The steps by which one version comes into one environment. What is done already costs a look."""

    context: Context
    version: RegisteredVersion
    manifest: Manifest
    of: Environment
    plans: list[Plan]
    notes: list[str] = field(default_factory=list)

    @property
    def homes(self) -> list[tuple[Plan, Placement]]:
        """Every data plane that it comes to, with the plan for the repository that it reads."""
        return [(plan, home) for plan in self.plans for home in plan.target.homes]

    def check(self, plan: Plan, entry_config: str) -> None:
        """Have the files here or at hand, and everything looked at, before anything is written."""
        repository, model, number = plan.repository, self.version.model, self.version.number
        cannot = f"{model} version {number} cannot be served there"
        self.notes += refuse(check_fits(plan.target, entry_config, self.manifest, plan.peak), cannot, repository.where)
        if plan.is_there(self.manifest):
            with self.context.progress(f"verifying version {number} in {repository.where}", self.manifest.size) as done:
                wrong = repository.differences(model, number, self.manifest, done)
            if wrong:
                what = f"version {number} in the repository is not what was registered: {'; '.join(wrong[:5])}"
                do = (
                    "find out who changed it; `tidegate verify` shows all of it. A version is never written over: "
                    "if nobody is served by it, remove it with `tidegate prune` and run this again"
                )
                raise IntegrityError(what, where=f"{repository.where}/{model}", do=do)
        else:
            staged = repository.staging(model, number, self.manifest.size)
            with self.context.progress(f"fetching {model} version {number}", self.manifest.size) as done:
                self.context.registry.fetch(self.version, staged, done)
            self.notes += refuse(check_staged(staged, plan.target, repository), cannot, repository.where)
        if plan.old is not None and plan.old != number:
            old_config = published_entry_config(repository, model, plan.old)
            beside = plan.target.kind.check_beside(old_config, entry_config, plan.old, number)
            self.notes += refuse(beside, cannot, repository.where)

    def publish(self, plan: Plan) -> None:
        """Lay the version into the repository, and have Triton serve it beside the old one."""
        repository, model, number = plan.repository, self.version.model, self.version.number
        if plan.is_there(self.manifest):
            # What serves already, and is as it was registered, needs no second configuration on its way.
            if plan.fresh:
                repository.write_config(model, plan.first)
            return
        self.context.tell(f"publishing {model} version {number} in {repository.where}")
        staged = repository.staging(model, number, self.manifest.size)
        with self.context.progress(f"publishing version {number}", self.manifest.size) as done:
            repository.publish(model, number, staged, self.manifest, plan.first, done)

    def try_out(self) -> None:
        """Wait until the version serves everywhere, and have it answer its golden request."""
        context, number = self.context, self.version.number
        golden = context.registry.golden(self.version)
        for plan, home in self.homes:
            context.tell(f"waiting until version {number} serves on {home.plane.name}")
            if (note := until_served(context, home, number, fresh=plan.fresh)) is not None:
                self.notes.append(note)
                continue
            if golden is not None:
                answers(context, home, number, golden)
                context.tell(f"version {number} answers its golden request on {home.plane.name}")
        if golden is None:
            self.notes.append("no golden request was registered with it, so it was not called")

    def check_alias(self, expected: int | None) -> None:
        """Raise BusyError when somebody has moved the environment's alias since it was looked at first."""
        registry, model = self.context.registry, self.version.model
        if (now := self.context.alias(model, self.of.name)) != expected:
            first, then = ("no version" if each is None else f"version {each}" for each in (expected, now))
            what = f"the alias {self.of.name} of {model} was moved from {first} to {then} meanwhile"
            do = "find out who did it (`tidegate history`), and run the same command again if it is still wanted"
            raise BusyError(what, where=registry.where, do=do)

    def write_down(self, what: Operation, who: str, records: Sequence[Record]) -> int | None:
        """Tag the version, and append the records that are not there yet; return the version that the environment had.

        The records come last: as long as one is missing, the next run knows that this one did not come to its end.
        """
        registry, number = self.context.registry, self.version.number
        source = self.of.promotion.source if what == "promote" else None
        previous: int | None = number
        latest = max((each.when for each in records), default=None)
        for plan, home in self.homes:
            had = current(records, self.of.name, home.plane.name)
            if had == number:
                continue
            previous = had if had is not None else plan.old if plan.old != number else None
            latest = when = self.context.now_after(latest)
            for key, value in (("by", who), ("at", when.isoformat(timespec="seconds")), ("from", source or "registry")):
                registry.tag(self.version, f"tidegate.{self.of.name}.{key}", value)
            record = Record(
                what=what, model=self.version.model, version=number, who=who, when=when, previous=previous,
                environment=self.of.name, plane=home.plane.name, source=source, proxy=home.plane.proxy_url,
                manifest_sha256=self.version.manifest_sha256,
            )  # fmt: skip
            registry.append_record(self.version, record)
        return previous

    def unserved(self) -> Iterator[str]:
        """Say where the definition has no calls go to the version."""
        for _, home in self.homes:
            shares = {share.version: share.weight for share in home.model.versions}
            if shares and not shares.get(self.version.number):
                among = f"the definition shares them out among versions {', '.join(map(str, shares))}"
                what = "raise its weight" if self.version.number in shares else f"name {self.version.number}"
                do = f"have the platform admin {what} there"
                yield f"on {home.plane.name} calls do not go to it: {among}; {do}"

    @contextmanager
    def told_on_failure(self) -> Iterator[None]:
        """Say what to do when the new version has begun to serve, and what is left to do fails."""
        name = f"version {self.version.number} of {self.version.model}"
        what = f"{name} serves in {self.of.name}, and not all is written down"
        do = "run the same command again: it does what is left; or `tidegate rollback`"
        try:
            yield
        except (TidegateError, OSError) as error:
            if (
                isinstance(error, BusyError) and error.do
            ):  # someone else moved the alias: another run would overwrite it
                do = error.do
            raise UnfinishedError(what, why=str(error).removesuffix(f"\n  do: {do}"), do=do) from error
        except BaseException:
            self.context.tell(f"{what}\n  do: {do}")
            raise


@contextmanager
def put_back_on_failure(
    context: Context, what: str, ways_back: dict[str, Callable[[], str]], notes: Sequence[str]
) -> Iterator[None]:
    """Put every configuration back if the block fails; say `what` did not happen, and what is so after that.

    `ways_back` are by their repositories. Each returns what is so then, or nothing if nothing was to be done.
    """
    try:
        yield
    except BaseException as error:
        after, left, more = [], [], [f"note: {note}" for note in notes]
        for where, put_back in reversed(ways_back.items()):
            try:
                after.append(put_back())
            except (TidegateError, OSError) as worse:
                left.append(f"{where}: {worse}")
        if left:
            more.append("and its configuration could not be put back: " + "; ".join(left))
        elif any(after):
            what = f"{what}: {'; '.join(filter(None, dict.fromkeys(after)))}"
        if not isinstance(error, TidegateError | OSError):
            context.tell("\n    ".join([what, *more]))
            raise
        do, why = "run the same command again", plain(error)
        if isinstance(error, TidegateError):
            do, why = error.do or do, str(error).removesuffix(f"\n  do: {error.do}")  # it stands at the end, once
        kind = type(error) if isinstance(error, BusyError | IntegrityError) else UnfinishedError
        raise kind(what, why="\n    ".join([why, *more]), do=do) from error


@contextmanager
def attempted(
    context: Context, what: Operation, version: RegisteredVersion, of: Environment, who: str
) -> Iterator[None]:
    """Write down that an operation begins, and why it failed: who is killed leaves the first alone."""
    record = Record(
        what=what, model=version.model, version=version.number, who=who, when=context.now(), environment=of.name,
        manifest_sha256=version.manifest_sha256, ended="interrupted",
    )  # fmt: skip
    context.registry.append_record(version, record)
    try:
        yield
    except TidegateError as error:
        note = " ".join(scrubbed(str(error)).split())
        with suppress(TidegateError):
            failed = record.model_copy(update={"when": context.now(), "ended": "failed", "note": note})
            context.registry.append_record(version, failed)
        raise
