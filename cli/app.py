"""All commands together: those of a platform first, then those of models, which the package in `client/` has alone."""

from tidegate.cli.app import add_commands, application

from . import capacity, chart, platform

app = application("Many models, few GPUs, one definition: the platform, and the life of its models.")
for command, words in (
    (platform.init, "Write a platform of your own."),
    (platform.check, "Check the definition."),
    (platform.render, "Write every stack as YAML."),
    (platform.schema, "Print the JSON schema of definitions."),
    (platform.preview, "Show what would change."),
    (platform.preflight, "List what a cluster lacks."),
    (platform.up, "Bring stacks up on a cluster."),
    (platform.down, "Take stacks down; datasets stay."),
    (platform.rollout, "Bring an environment up, plane after plane."),
    (platform.pin, "Write the digests of all images."),
    (platform.guardrails, "Check any manifests against the guardrails."),
    (platform.environments, "Print what clients need to know."),
    (platform.dashboards, "Write Grafana's dashboards."),
    (chart.values, "Print a stack's values for the Helm chart."),
    (chart.chart, "Write the Helm chart."),
    (capacity.trace, "Record traffic."),
    (capacity.plan, "Find the cheapest slices for a trace."),
    (capacity.advise, "Advise on each pool."),
):
    app.command(short_help=words)(command)
add_commands(app)
