"""Pictures of terminals for the documentation: what a command printed, as SVG."""

import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

PICTURES = Path(__file__).resolve().parents[1] / "docs/pictures"


def draw(name: str, printed: str, title: str, width: int) -> None:
    """Write what was printed, with its colours, as `docs/pictures/<name>.svg`."""
    with Path("/dev/null").open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=width, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(printed.rstrip()))
        form = re.sub(r"@font-face {{.*?}}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)  # it would fetch fonts
        svg = console.export_svg(title=title, theme=MONOKAI, unique_id=name, code_format=form)
    (PICTURES / f"{name}.svg").write_text(svg, "utf-8")
