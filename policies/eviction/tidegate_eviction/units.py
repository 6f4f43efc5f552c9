"""Sizes as people read them."""

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
