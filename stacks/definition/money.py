"""Cost of GPU devices an hour and a month, if their price is known."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

HOURS_A_MONTH: Final = 730  # A twelfth of a year of 365 days.
CURRENCY: Final = "USD"

Hourly = Mapping[str, Mapping[str, float | None]]
"""GPU product → profile of a slice, `gpu`, `time-slicing` or `mps` → price of one an hour, or None if not known."""


def price_of(prices: Hourly, device: str, product: str = "") -> float | None:
    """Return the price of a device an hour: of all products the highest, or None if one is unknown."""
    found = [of[device] for made, of in prices.items() if device in of and product in ("", made)]
    known = [price for price in found if price is not None]
    return max(known) if known and len(known) == len(found) else None


@dataclass(frozen=True)
class Cost:
    """Cost of devices that run all the time."""

    devices: int = 0
    unpriced: int = 0  # Devices without a known price.
    hourly: float = 0.0  # Price of the others an hour.
    currency: str = CURRENCY
    kinds: tuple[tuple[str, int], ...] = ()  # Number of devices of each kind, such as a profile, by name.

    def __add__(self, other: "Cost") -> "Cost":
        currency = self.currency if self.hourly else other.currency
        hourly = self.hourly + other.hourly
        kinds = Counter(dict(self.kinds)) + Counter(dict(other.kinds))
        devices, unpriced = self.devices + other.devices, self.unpriced + other.unpriced
        return Cost(devices, unpriced, hourly, currency, tuple(sorted(kinds.items())))

    @property
    def month(self) -> float | None:
        """Return the cost a month, or None if a price is missing."""
        return None if self.unpriced else self.hourly * HOURS_A_MONTH

    def __str__(self) -> str:
        """Return `$1,068`, or device hours if a price is missing."""
        hours = f"{self.unpriced * HOURS_A_MONTH:,} device hours"
        known = money(self.hourly * HOURS_A_MONTH, self.currency)
        if self.unpriced:
            return f"{known} and {hours} without a price" if self.hourly else hours
        return known


def cost(count: int, price: float | None, currency: str, kind: str = "") -> Cost:
    """Return the cost of `count` devices of a kind with a price an hour."""
    hourly = 0.0 if price is None else count * price
    return Cost(count, count if price is None else 0, hourly, currency, ((kind, count),) if kind and count else ())


def money(amount: float, currency: str = CURRENCY, *, signed: bool = False) -> str:
    """Return an amount as text: `$1,068`, `-$20`, `950 EUR`. With `signed`, a positive amount has a plus."""
    sign = "-" if round(amount) < 0 else "+" if signed and round(amount) > 0 else ""
    figures = f"{abs(amount):,.0f}"
    return f"{sign}${figures}" if currency == CURRENCY else f"{sign}{figures} {currency}"


def difference(before: Cost, after: Cost) -> str:
    """Return the difference of two costs a month: money, or device hours if a price is missing. If several kinds
    change, each has separate device hours, because hours of slices of different sizes do not add up."""
    if before.month is None or after.month is None:
        was, will = Counter(dict(before.kinds)), Counter(dict(after.kinds))
        changed = {kind: will[kind] - was[kind] for kind in sorted({*was, *will}) if will[kind] != was[kind]}
        if len(changed) > 1:
            return ", ".join(f"{count * HOURS_A_MONTH:+,} device hours of {kind}" for kind, count in changed.items())
        return f"{(after.devices - before.devices) * HOURS_A_MONTH:+,} device hours"
    return money(after.month - before.month, after.currency, signed=True)
