"""`python -m capacity`: what the Makefile calls. What a command needs is imported when it runs."""

import sys

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Traffic, recorded; slices and money, planned; pools, advised.",
)


@app.callback()
def capacity() -> None:
    """Traffic, recorded; slices and money, planned; pools, advised."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to fail
    app(prog_name="python -m capacity")


if __name__ == "__main__":
    main()
