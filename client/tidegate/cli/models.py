"""`tidegate models`: which models there are, where, which versions answer, what they take and give."""

from typing import Annotated

import typer

from .output import Json, answering, print_json, print_table
from .status import Environment, Plane, Proxy, state, told


def models(
    model: Annotated[str | None, typer.Argument(help="Only this model.")] = None,
    environment: Environment = None,
    plane: Plane = None,
    proxy: Proxy = None,
    json: Json = False,
) -> None:
    """Show which models there are, where, which versions answer, what they take and give. Loads nothing."""
    with answering():
        from ..seeing.spots import every
        from ..seeing.status import look

        found = look(every(environment, plane, proxy), model, signatures=True)
        shown = sorted((each for at in found for each in at.models), key=lambda each: each.model)
        if json:
            print_json(shown)
        else:
            columns = (
                "MODEL",
                "ENVIRONMENT",
                "SERVER",
                "LOADING",
                "VERSIONS",
                "TRAFFIC",
                "INPUTS",
                "OUTPUTS",
                "#BATCH",
            )
            print_table(
                columns,
                [
                    (
                        each.model,
                        f"{each.environment} {each.plane}".strip(),
                        each.server,
                        each.loading if each.state in ("ready", "not-ready") else state(each),
                        ", ".join(version.version for version in each.versions),
                        each.traffic,
                        "\n".join(each.inputs)
                        or ("(not in memory)" if each.resident is False and each.state != "absent" else ""),
                        "\n".join(each.outputs),
                        each.max_batch,
                    )
                    for each in shown
                ],
            )
        told(found, json)
