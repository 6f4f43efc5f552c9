"""The demos' output: sentences, commands and what the commands print."""

from collections.abc import Mapping

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from tidegate.output import size

from lab.local_plane.process import Process

from . import zoo

_TABLE = tuple("┏┡┃│├└")  # Each line of a table begins with one of these.


class Show:
    """Prints a demo's output on a console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def print(self, text: str) -> None:
        """Print a sentence, without reading markup in it."""
        self.console.print(Text(text), highlight=False)

    def scene(self, title: str, claim: str) -> None:
        self.console.print()
        self.console.print(Text(title, "bold"))
        self._inside(Text(claim))

    def outcome(self, text: str, seconds: float) -> None:
        self._inside(Text.assemble(text, (f"  ({seconds:.1f} s)", "dim")), Text("✔", "bold green"))

    def note(self, text: str) -> None:
        self._inside(Text(text), Text("·"))

    def command(self, who: str, command: str) -> None:
        self._inside(Text.assemble((f"{who} $ ", "dim"), (command, "bold cyan")))

    def output(self, text: str) -> None:
        """Print a command's output. Tables are cropped to the console's width."""
        for line in text.splitlines():
            if line.startswith(_TABLE):
                self.console.print(Text(f"        {line}", "dim"), no_wrap=True, overflow="crop", soft_wrap=True)
            else:
                self.console.print(Padding(Text(line, "dim"), (0, 0, 0, 8)))

    def failure(self, text: str) -> None:
        self._inside(Text(text), Text("✘", "bold red"))

    def the_zoo(self) -> None:
        """Print the on-demand server's models, and by how much they exceed the capacity together."""
        sizes = sorted((count, name) for name, count in zoo.SIZES.items() if count)
        whole = sum(zoo.SIZES.values())
        self._inside(
            Text(
                f"{', '.join(f'{name} {size(count)}' for count, name in sizes)} and {zoo.HERD}, an ensemble of "
                f"{' and '.join(zoo.HERD_OF)}. These {len(zoo.SIZES)} models need {size(whole)}, but the slice has "
                f"{size(zoo.CAPACITY_BYTES)}: they would fill it {whole / zoo.CAPACITY_BYTES:.1f} times. "
                f"{zoo.SINGER} streams. {zoo.BROKEN.name} fails to load. The preload Triton has {zoo.RESIDENT.name}. "
                f"{zoo.NEWCOMER.name} has no file there until a scene publishes it: until then, its state is unknown."
            )
        )

    def parts(self, parts: Mapping[str, Process]) -> None:
        table = Table("process", "pid", "log", box=None, pad_edge=False, header_style="bold")
        for name, process in parts.items():
            table.add_row(Text(name), Text(str(process.pid)), Text(str(process.log), overflow="fold"))
        self.console.print(table)

    def _inside(self, text: Text, sign: Text | None = None) -> None:
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(width=5, justify="right")
        grid.add_column()
        grid.add_row(sign or Text(), text)
        self.console.print(grid)
