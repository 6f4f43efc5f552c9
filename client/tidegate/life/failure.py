"""What becomes of it when a version does not come: configurations go back, and it is said what is so then."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidegate_contracts.environments import Environment

from ..errors import BusyError, IntegrityError, TidegateError, UnfinishedError
from ..registry import RegisteredVersion
from .context import Context
from .plan import Plan
from .steps import put_back


@contextmanager
def put_back_on_failure(
    context: Context, version: RegisteredVersion, of: Environment, plans: Sequence[Plan], notes: Sequence[str]
) -> Iterator[None]:
    """Put every configuration back that was written; what served before serves on."""
    try:
        yield
    except BaseException as error:
        reached, left = False, []
        for plan in reversed(plans):
            try:
                reached = _is_called(plan) or reached
                put_back(plan, version.model)
            except (TidegateError, OSError) as worse:
                left.append(f"{plan.repository.where}: {worse}")
        what = _said(version, of, plans)
        more = [f"note: {note}" for note in notes]
        if reached:
            more.append(f"note: calls may have been answered by version {version.number} meanwhile")
        if left:
            more.append("and its configuration could not be put back: " + "; ".join(left))
        if not isinstance(error, TidegateError | OSError):
            context.tell("\n    ".join([what, *more]))
            raise
        do = error.do if isinstance(error, TidegateError) else ""
        # What to do stands at the end, once.
        why = (
            f"{type(error).__name__}: {error}"
            if isinstance(error, OSError)
            else str(error).removesuffix(f"\n  do: {do}")
        )
        kinds: tuple[type[TidegateError], ...] = (BusyError, IntegrityError)
        kind = next((each for each in kinds if isinstance(error, each)), UnfinishedError)
        raise kind(
            what, why="\n    ".join([why, *more]), do=do or "run the same command again: it goes on from there"
        ) from error


@contextmanager
def said_on_failure(context: Context, version: RegisteredVersion, of: Environment) -> Iterator[None]:
    """Say what to do when the new version has begun to serve, and what is left to do fails."""
    what = f"version {version.number} of {version.model} serves in {of.name}, and not all is written down"
    do = "run the same command again: it does what is left; or `tidegate rollback`"
    try:
        yield
    except (TidegateError, OSError) as error:
        raise UnfinishedError(what, why=str(error), do=do) from error
    except BaseException:
        context.tell(f"{what}\n  do: {do}")
        raise


def _is_called(plan: Plan) -> bool:
    """Tell whether calls may have gone to the version by what this run wrote."""
    text = plan.repository.config(plan.place.model)
    if text is None or text == plan.now:
        return False
    if text == plan.last:
        return True
    newest = any(use.follows == "newest" for use in plan.place.uses)
    return newest and plan.number == max(plan.repository.configs.read_published(text).served, default=None)


def _said(version: RegisteredVersion, of: Environment, plans: Sequence[Plan]) -> str:
    """Return what is so after the configurations went back."""
    if all(plan.back == version.number for plan in plans):
        return f"{of.name} has version {version.number} of {version.model} already, and it was not seen to be called"
    said: dict[str, list[str]] = {}
    for plan in plans:
        said.setdefault(_serves(plan), []).extend(use.home.plane.name for use in plan.place.uses)
    serves = (
        next(iter(said)) if len(said) == 1 else "; ".join(f"{', '.join(where)}: {what}" for what, where in said.items())
    )
    return f"version {version.number} of {version.model} did not come into {of.name}; {serves}"


def _serves(plan: Plan) -> str:
    again = f" again: an earlier run had calls go to version {plan.number} already" if plan.is_cut_over else ""
    if plan.before is None or not plan.repository.configs.read_published(plan.before).served:
        return f"nothing serves under its name{again}"
    if plan.back is None:
        return f"what served before serves{again or ' on'}"
    return f"version {plan.back} serves{again or ' on'}"
