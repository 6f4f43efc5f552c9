"""The kinds of values that arguments hold.

To Pulumi and to a type checker each is a plain type. The words beside it say what the value means, and a generator
that writes a schema of the arguments looks up by them which texts and numbers are allowed.

What other texts are composed of (names, numbers, whatever stands in a file) is a plain `str` or `int`; what goes into
an object as it is may also be an output of another resource.
"""

from collections.abc import Mapping
from typing import Annotated, Final

from pulumi import Input

# Names and texts.
DnsLabel = Annotated[str, "DNS label"]
ServiceLabel = Annotated[str, "service label"]
ObjectName = Annotated[str, "object name"]
Text = Annotated[str, "text"]
Glob = Annotated[str, "glob"]
ModelName = Annotated[str, "model name"]
LabelKey = Annotated[Input[str], "label key"]
LabelValue = Annotated[Input[str], "label value"]
Image = Annotated[Input[str], "image"]
Host = Annotated[Input[str], "host name"]
HttpPath = Annotated[Input[str], "URL path"]
HttpUrl = Annotated[str, "URL"]
IdentitySource = Annotated[str, "source of identities"]
ObjectStoreUrl = Annotated[str, "URL of object storage"]
AbsolutePath = Annotated[Input[str], "absolute path"]
RelativePath = Annotated[Input[str], "relative path"]
Cidr = Annotated[Input[str], "address range"]
TritonArgument = Annotated[str, "argument of tritonserver"]
GpuProduct = Annotated[str, "GPU product"]
MigProfile = Annotated[str, "MIG profile"]

# Amounts.
CpuQuantity = Annotated[Input[str], "CPU quantity"]
ByteQuantity = Annotated[Input[str], "byte quantity"]
Bytes = Annotated[int, "bytes"]
Replicas = Annotated[Input[int], "replicas"]
Count = Annotated[int, "count"]
Percent = Annotated[Input[int], "per cent"]
Weight = Annotated[int, "per cent"]
Port = Annotated[Input[int], "port"]
Level = Annotated[int, "level"]
Seconds = Annotated[int, "seconds"]

# Mappings with keys of the user's own choice.
Labels = Annotated[Input[Mapping[str, Input[str]]], "labels"]
Annotations = Annotated[Input[Mapping[str, Input[str]]], "annotations"]
Attributes = Annotated[Input[Mapping[str, Input[str]]], "attributes"]
Variables = Annotated[Mapping[str, Input[str]], "environment variables"]

ENGINE_ONLY: Final = "engine"
"""In the metadata of a field: it is for Pulumi's engine, and none of the chart's values."""
