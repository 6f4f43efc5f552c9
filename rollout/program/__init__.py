"""The Pulumi program: declares one stack of the definition, which is an environment on a data plane.

Configuration of a stack (`stacks/Pulumi.<environment>-<data plane>.yaml`), every key with the prefix `tidegate:`

- `environment`: name of the environment
- `dataPlane`: name of the data plane
- `definition`: file of the definition (default: stacks/inference.yaml)
- `renderTo`: directory to write the objects to as YAML, instead of applying them to a cluster
- `context`: kubeconfig context, instead of the data plane's

The environment variable TIDEGATE_READ_FROM names a file to read instead of the definition, for one run. A rollout uses
it to keep the text that it started with.
"""

import os
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components import Environment
from stacks.command import CommandError, for_stack, unknown
from stacks.problems import DefinitionError, advisory_text
from stacks.resolve import resolve
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from ..contexts import refuse_tags

RENDERED = "-rendered"
"""Suffix of the names of stacks that render. A stack must not change between rendering and applying, because that would
delete every object of its cluster."""
SKIP_AWAIT = "pulumi.com/skipAwait"  # An annotation for Pulumi alone. Neither the chart nor rendered YAML has it.


def run() -> None:
    """Declare the stack that the configuration names. Raises pulumi.RunError with one clear message."""
    try:
        _declare()
    except (DefinitionError, CommandError) as error:
        raise pulumi.RunError(str(error)) from None


def _declare() -> None:
    config = pulumi.Config()
    file = config.get("definition") or "stacks/inference.yaml"
    definition = read_definition(os.environ.get("TIDEGATE_READ_FROM") or file).known_as(file)
    stack = _stack(definition, config.require("environment"), config.require("dataPlane"))
    render_to = config.get("renderTo")
    _check_name(stack, render_to)
    context = config.get("context") or stack.data_plane.context_name
    if render_to is None:
        _refuse_tags(definition, stack)
    if definition.advisories:
        pulumi.log.warn(advisory_text(definition.advisories))
    args = resolve(stack, definition.lock)
    provider = k8s.Provider(
        "cluster",
        # Not the context: if it were renamed, Pulumi would replace the provider and with it all objects.
        cluster_identifier=stack.data_plane.name,
        context=None if render_to else context,
        # Empty, so that it is found as kubectl finds it. Otherwise the SDK writes a personal path into the state.
        kubeconfig="",
        render_yaml_to_directory=render_to,
        # Revert manual changes instead of failing with a conflict.
        enable_patch_force=True,
        # Otherwise a change of a ConfigMap re-creates it, while pods have it mounted.
        enable_config_map_mutable=True,
    )
    options = pulumi.ResourceOptions(
        provider=provider,
        # Rendered files must not contain annotations that only Pulumi understands.
        transformations=None if render_to else [without_service_waits],
    )
    Environment(stack.name, args, options)
    pulumi.export("proxyAddress", args.proxy.service_url(stack.namespace))


def without_service_waits(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
    """Make Pulumi not wait ten seconds for a Service's pods, because it has already waited for them. It still waits for
    a load balancer, which gets its address only then."""
    props: Any = args.props
    if args.type_ != "kubernetes:core/v1:Service" or props["spec"].type == "LoadBalancer":
        return None
    metadata = props["metadata"]
    metadata.annotations = {**(metadata.annotations or {}), SKIP_AWAIT: "true"}
    return pulumi.ResourceTransformationResult(args.props, args.opts)


def _refuse_tags(definition: Definition, stack: Stack) -> None:
    """Refuse images without a digest. In a preview, only warn."""
    try:
        refuse_tags(definition, [stack])
    except CommandError as error:
        if not pulumi.runtime.is_dry_run():
            raise
        pulumi.log.warn(str(error))


def _stack(definition: Definition, environment: str, data_plane: str) -> Stack:
    for stack in definition.stacks:
        if (environment, data_plane) in ((one.environment.name, one.data_plane.name) for one in stack.former()):
            do = for_stack("up", stack, engine="pulumi")
            raise CommandError(
                f"{environment} on {data_plane} is now {stack.environment.name} on {stack.data_plane.name}. First move"
                f" Pulumi's state to that name: {do}"
            )
    homes = {stack.data_plane.name: stack for stack in definition.stacks if stack.environment.name == environment}
    if not homes:
        raise unknown("environment", environment, dict.fromkeys(stack.environment.name for stack in definition.stacks))
    if data_plane not in homes:
        raise unknown(f"data plane of environment {environment} called", data_plane, homes)
    return homes[data_plane]


def _check_name(stack: Stack, render_to: str | None) -> None:
    """Refuse a stack with a wrong name: two stacks would own the same objects."""
    wanted = stack.name + (RENDERED if render_to else "")
    if pulumi.get_stack() != wanted:
        raise CommandError(
            f"this stack is named {pulumi.get_stack()}, but its configuration sets {stack.environment.name} on"
            f" {stack.data_plane.name}{', rendered' if render_to else ''}, which needs the name {wanted}.\n"
            f"Correct stacks/Pulumi.{pulumi.get_stack()}.yaml, or run `pulumi stack select --create {wanted}`."
        )
