"""Sizes and times as people read them."""

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def bytes_text(size: int | None) -> str:
    """Return bytes in the unit that fits; a dash for None."""
    if size is None:
        return "–"
    value = float(size)
    for unit in _SIZES:
        if abs(value) < 1024 or unit == _SIZES[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 100 else f"{value:.1f} {unit}"


def seconds_text(seconds: float | None) -> str:
    """Return seconds in the unit that fits; a dash for None."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
