"""What Pulumi is told about objects that is no part of them: neither the chart nor rendered YAML has it."""

from typing import Any

import pulumi

SKIP_AWAIT = "pulumi.com/skipAwait"


def without_service_waits(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
    """Let Pulumi not wait for a Service: it would wait ten seconds for pods that it has waited for already.

    A load balancer's is waited for: only then it has its address.
    """
    props: Any = args.props
    if args.type_ != "kubernetes:core/v1:Service" or props["spec"].type == "LoadBalancer":
        return None
    metadata = props["metadata"]
    metadata.annotations = {**(metadata.annotations or {}), SKIP_AWAIT: "true"}
    return pulumi.ResourceTransformationResult(args.props, args.opts)
