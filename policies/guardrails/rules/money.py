"""Money: what an environment may cost."""

from collections.abc import Iterable, Iterator

from ..devices import most_replicas, requested
from ..money import Cost, cost, money, price_of
from ..objects import Environment, Object, environments, name_of
from ..rule import Breach, guardrail


@guardrail(
    "All replicas together, at an autoscaler's maximum, cost at most `guardrails.monthlyBudget` a month",
    "Take fewer replicas or smaller slices, or agree on a higher guardrails.monthlyBudget; set the price of each "
    "product under gpus.",
    shared="mandatory",
    local="mandatory",
)
def the_cost_a_month_stays_within_its_budget(environment: Environment) -> Iterator[Breach]:
    """The inventory's prices count, for 730 hours, on one data plane.

    A device without a price could cost anything, so none may be without one where there is a budget.
    """
    settings = environment.settings
    if settings.monthly_budget is None:
        return
    each = costs(environment)
    total = sum(each.values(), Cost())
    most = ", ".join(f"{name} {one}" for name, one in sorted(each.items(), key=lambda it: -it[1].hourly) if one.devices)
    ceiling = money(settings.monthly_budget, settings.currency)
    if total.unpriced:
        yield Breach(environment.itself, f"{total.unpriced} of its {total.devices} GPU devices have no price: {most}")
    elif (total.month or 0) > settings.monthly_budget:
        yield Breach(environment.itself, f"it may cost {total} a month, and its budget is {ceiling}: {most}")


def costs(environment: Environment) -> dict[str, Cost]:
    """Return what the devices of each workload cost, an autoscaler's most counted."""
    found: dict[str, Cost] = {}
    for pod in environment.workloads:
        for each in requested(environment, pod):
            key, count = each.device.price_key, each.count * most_replicas(environment, pod)
            price = price_of(environment.settings.prices, key, each.product)
            one = cost(count, price, environment.settings.currency, key)
            found[name_of(pod.maker)] = found.get(name_of(pod.maker), Cost()) + one
    return found


def cost_of(objects: Iterable[Object]) -> Cost:
    """Return what the devices of a stack's objects cost."""
    return sum((one for each in environments(objects) for one in costs(each).values()), Cost())
