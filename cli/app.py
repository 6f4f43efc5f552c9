"""All commands: those of a platform first, then those for models, which the package in `client/` has alone."""

from tidegate.cli.app import add_commands, application

from . import capacity, chart, platform

app = application("Many models, few GPUs, one definition: the platform, and the lifecycle of its models.")
for command, words in (
    (platform.init, "Write a repository for your platform."),
    (platform.check, "Check the definition."),
    (platform.render, "Write every stack as YAML."),
    (platform.schema, "Print the JSON schema of definitions."),
    (platform.preview, "Show what would change."),
    (platform.preflight, "List what a cluster is missing."),
    (platform.up, "Apply stacks to a cluster."),
    (platform.down, "Remove stacks from a cluster. Datasets stay."),
    (platform.rollout, "Roll out an environment, cluster by cluster."),
    (platform.pin, "Look up and lock the digests of all images."),
    (platform.guardrails, "Check Kubernetes manifests against the guardrails."),
    (platform.environments, "Print the settings that clients need."),
    (platform.dashboards, "Write the Grafana dashboards."),
    (chart.values, "Print a stack's values for the Helm chart."),
    (chart.chart, "Write the Helm chart."),
    (capacity.trace, "Record traffic as a trace."),
    (capacity.plan, "Find the cheapest slices for a trace."),
    (capacity.advise, "Recommend a change for each pool."),
):
    app.command(short_help=words)(command)
add_commands(app)
