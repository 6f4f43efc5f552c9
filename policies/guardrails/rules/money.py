"""Money: what an environment may cost."""

import re
from collections.abc import Iterable, Iterator

from ..money import Cost, cost, money, price_of
from ..objects import Environment, Object, Pod, at, environments, mapping, mappings, name_of, number, text
from ..rule import Breach, guardrail
from .gpu import GPU, MIG, PRODUCT, SHARING, devices, most_replicas

_PROFILE = re.compile(r"\.profile == '([^']+)'")
_PRODUCT = re.compile(r"\.productName\.replace\(' ', '-'\) == '([^']+)'")


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
        for device, product, count in (*_limits(pod), *_claims(environment, pod)):
            price = price_of(environment.settings.prices, device, product)
            one = cost(count * most_replicas(environment, pod), price, environment.settings.currency, device)
            found[name_of(pod.maker)] = found.get(name_of(pod.maker), Cost()) + one
    return found


def cost_of(objects: Iterable[Object]) -> Cost:
    """Return what the devices of a stack's objects cost."""
    return sum((one for each in environments(objects) for one in costs(each).values()), Cost())


def _limits(pod: Pod) -> Iterator[tuple[str, str, int]]:
    """Yield device, product and number of what a replica's containers are limited to."""
    selector = mapping(pod.spec.get("nodeSelector"))
    product, _, profile = text(selector.get(PRODUCT)).removesuffix("-SHARED").partition("-MIG-")
    for resource, count in devices(pod).items():
        if resource.startswith(MIG):
            yield resource.removeprefix(MIG), product, count
        else:
            yield profile or text(selector.get(SHARING)) or GPU.rpartition("/")[2], product, count


def _claims(environment: Environment, pod: Pod) -> Iterator[tuple[str, str, int]]:
    templates = {name_of(item): item for item in environment.of_kind("ResourceClaimTemplate")}
    for claim in mappings(pod.spec.get("resourceClaims")):
        template = templates.get(text(claim.get("resourceClaimTemplateName")))
        for request in mappings(at(template, "spec", "spec", "devices", "requests")):
            selectors = mappings(at(request, "exactly", "selectors"))
            said = " ".join(text(at(one, "cel", "expression")) for one in selectors)
            profile, product = _PROFILE.search(said), _PRODUCT.search(said)
            count = number(at(request, "exactly", "count"))
            yield profile[1] if profile else "gpu", product[1] if product else "", 1 if count is None else count
