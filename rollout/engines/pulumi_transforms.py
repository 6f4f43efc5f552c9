"""Annotations for Pulumi alone. Neither the chart nor rendered YAML has them."""

from typing import Any

import pulumi

SKIP_AWAIT = "pulumi.com/skipAwait"


def without_service_waits(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
    """Make Pulumi not wait ten seconds for a Service's pods, because it has already waited for them. It still waits for
    a load balancer, which gets its address only then."""
    props: Any = args.props
    if args.type_ != "kubernetes:core/v1:Service" or props["spec"].type == "LoadBalancer":
        return None
    metadata = props["metadata"]
    metadata.annotations = {**(metadata.annotations or {}), SKIP_AWAIT: "true"}
    return pulumi.ResourceTransformationResult(args.props, args.opts)
