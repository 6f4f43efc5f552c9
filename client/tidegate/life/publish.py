"""Publishes a registered version to an environment. Deploy, promote and rollback all use it, under different rules.

Every step is idempotent, and a completed step costs one check. Until calls go to the new version everywhere, a failure
restores the configurations. A run that is killed leaves both versions served, and the next run continues.
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
    changed: bool  # whether anything had to be done
    who: str
    planes: tuple[str, ...]
    notes: tuple[str, ...] = ()  # warnings for the user


def publish_version(
    context: Context, what: Operation, version: RegisteredVersion, of: Environment, who: str
) -> Outcome:
    """Publish a version to an environment. The rules must allow it. It is served everywhere when this returns. Raises
    TidegateError: BusyError if another publisher holds the lock, UnfinishedError if it failed on the way."""
    registry, model, number = context.registry, version.model, version.number
    if not is_alias(of.name):
        cannot = f"the registry cannot record versions for an environment named {of.name}"
        do = "have the platform admin rename the environment, and list this name in `formerly`"
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
            # The alias under the former name stays. Under the new name there is none yet.
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
            by_hand = f"the alias {of.name} of {model} was at version {expected}, but the records have {has}"
            run.notes.append(f"{by_hand}. Find out who moved it")
        changed = any(plan.now != plan.last for plan in plans)
        to_do = changed or any(current(records, of.name, home.plane.name) != number for _, home in run.homes)
        locks.enter_context(attempted(context, what, version, of, who) if to_do else nullcontext())
        for plan in plans:
            run.check(plan, entry_config)
        what_failed = f"version {number} of {model} did not reach {of.name}"
        if not to_do:
            what_failed = f"{of.name} already has version {number} of {model}, but calls may not reach it"
        ways_back = {plan.repository.where: plan.put_back for plan in plans}
        with put_back_on_failure(context, what_failed, ways_back, run.notes):
            if changed:
                for plan in plans:
                    run.publish(plan)
            # An interrupted run may have written the last configuration without testing the version.
            if to_do:
                run.try_out()
                run.check_alias(expected)
            for plan in plans:
                plan.repository.write_config(model, plan.last)
            for _, home in run.homes:
                until_called(context, home, number)
        with run.explained_failure():
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
    """The steps that publish one version to one environment. A completed step costs one check."""

    context: Context
    version: RegisteredVersion
    manifest: Manifest
    of: Environment
    plans: list[Plan]
    notes: list[str] = field(default_factory=list)

    @property
    def homes(self) -> list[tuple[Plan, Placement]]:
        return [(plan, home) for plan in self.plans for home in plan.target.homes]

    def check(self, plan: Plan, entry_config: str) -> None:
        """Verify the files in the repository, or fetch and check them. Writes nothing to the repository."""
        repository, model, number = plan.repository, self.version.model, self.version.number
        cannot = f"{model} version {number} cannot be served there"
        self.notes += refuse(check_fits(plan.target, entry_config, self.manifest, plan.peak), cannot, repository.where)
        if plan.is_there(self.manifest):
            with self.context.progress(f"verifying version {number} in {repository.where}", self.manifest.size) as done:
                wrong = repository.differences(model, number, self.manifest, done)
            if wrong:
                what = f"version {number} in the repository differs from what was registered: {'; '.join(wrong[:5])}"
                do = (
                    "find out who changed it. `tidegate verify` lists all differences. A version is never overwritten: "
                    "if it is not served, remove it with `tidegate prune` and run this again"
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
        """Copy the version into the repository, and serve it together with the old version."""
        repository, model, number = plan.repository, self.version.model, self.version.number
        if plan.is_there(self.manifest):
            # A version that is served already and unchanged needs no intermediate configuration.
            if plan.fresh:
                repository.write_config(model, plan.first)
            return
        self.context.tell(f"publishing {model} version {number} in {repository.where}")
        staged = repository.staging(model, number, self.manifest.size)
        with self.context.progress(f"publishing version {number}", self.manifest.size) as done:
            repository.publish(model, number, staged, self.manifest, plan.first, done)

    def try_out(self) -> None:
        """Wait until the version is served everywhere, and send it the golden request."""
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
            self.notes.append("it was registered without a golden request, so it was not called")

    def check_alias(self, expected: int | None) -> None:
        """Raise BusyError if the environment's alias moved since this run read it."""
        registry, model = self.context.registry, self.version.model
        if (now := self.context.alias(model, self.of.name)) != expected:
            first, then = ("no version" if each is None else f"version {each}" for each in (expected, now))
            what = f"the alias {self.of.name} of {model} moved from {first} to {then} meanwhile"
            do = "find out who moved it (`tidegate history`), and run the same command again if it is still needed"
            raise BusyError(what, where=registry.where, do=do)

    def write_down(self, what: Operation, who: str, records: Sequence[Record]) -> int | None:
        """Tag the version and append the missing records. Return the version that the environment had. The records are
        last: if one is missing, the next run knows that this one was not completed."""
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
        """Yield a warning for each data plane whose traffic split excludes the version."""
        for _, home in self.homes:
            shares = {share.version: share.weight for share in home.model.versions}
            if shares and not shares.get(self.version.number):
                among = f"the definition splits them among versions {', '.join(map(str, shares))}"
                what = "raise its weight" if self.version.number in shares else f"add version {self.version.number}"
                do = f"have the platform admin {what} there"
                yield f"no calls go to it on {home.plane.name}: {among}. To change that, {do}"

    @contextmanager
    def explained_failure(self) -> Iterator[None]:
        """Explain a failure after the new version is served, while the registry is updated."""
        name = f"version {self.version.number} of {self.version.model}"
        what = f"{name} is served in {self.of.name}, but the registry is not up to date"
        do = "run the same command again to complete it, or run `tidegate rollback`"
        try:
            yield
        except (TidegateError, OSError) as error:
            # If someone else moved the alias, another run would overwrite it.
            if isinstance(error, BusyError) and error.do:
                do = error.do
            raise UnfinishedError(what, why=str(error).removesuffix(f"\n  do: {do}"), do=do) from error
        except BaseException:
            self.context.tell(f"{what}\n  do: {do}")
            raise


@contextmanager
def put_back_on_failure(
    context: Context, what: str, ways_back: dict[str, Callable[[], str]], notes: Sequence[str]
) -> Iterator[None]:
    """Restore every configuration if the block fails, and raise an error that explains `what` failed and the result.

    `ways_back` has a function for each repository. It restores the configuration and describes the result. The text is
    empty if there was nothing to restore.
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
            more.append("its configuration could not be restored: " + "; ".join(left))
        elif any(after):
            what = f"{what}: {'; '.join(filter(None, dict.fromkeys(after)))}"
        if not isinstance(error, TidegateError | OSError):
            context.tell("\n    ".join([what, *more]))
            raise
        do, why = "run the same command again", plain(error)
        if isinstance(error, TidegateError):
            do, why = error.do or do, str(error).removesuffix(f"\n  do: {error.do}")  # `do` is added once, at the end
        kind = type(error) if isinstance(error, BusyError | IntegrityError) else UnfinishedError
        raise kind(what, why="\n    ".join([why, *more]), do=do) from error


@contextmanager
def attempted(
    context: Context, what: Operation, version: RegisteredVersion, of: Environment, who: str
) -> Iterator[None]:
    """Record that an operation starts, and why it failed. A killed run leaves only the first record."""
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
