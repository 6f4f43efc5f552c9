"""Pictures for the documentation, of what a command, a page or Prometheus returned. DRAW=1 writes them."""

import io
import json
import os
import re
from html import unescape
from pathlib import Path

import quickjs
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, Group
from rich.terminal_theme import DIMMED_MONOKAI

HERE = Path(__file__).resolve().parent
HEADING = re.compile(r'class="head[^"]*">([^<]*)<')


def kept(name: str, drawn: str, *parts: str) -> str:
    """Check that the picture of the documentation has the headings of the drawn one, and these parts. Return it."""
    file = HERE.parent / f"docs/pictures/{name}.svg"
    if os.environ.get("DRAW"):
        file.write_text(drawn, "utf-8")
    old, new = (unescape(each).replace("\xa0", " ") for each in (file.read_text("utf-8"), drawn))
    missing = [part for part in parts if part not in old]
    assert (HEADING.findall(old), missing) == (HEADING.findall(new), []), "DRAW=1 draws it again"
    return file.read_text("utf-8")


def drawn(kind: str, *data: object) -> str:
    """Draw with a function of `pictures.js`."""
    context = quickjs.Context()
    context.eval(f"const CSS = {json.dumps((HERE / 'pictures.css').read_text('utf-8'))};")
    context.eval((HERE / "pictures.js").read_text("utf-8"))
    return str(context.eval(f"{kind}({', '.join(map(json.dumps, data))})"))


def terminal(title: str, width: int, shown: Group) -> str:
    """Draw a terminal of this width."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(shown)
    form = re.sub(r"@font-face {{.*?}}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)  # it would fetch fonts
    return console.export_svg(title=title, theme=DIMMED_MONOKAI, unique_id="terminal", code_format=form)
