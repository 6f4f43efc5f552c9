import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tidegate.errors import UsageError
from tidegate.names import is_name
from tidegate.repository import Published
from tidegate.triton.publishing.config import (
    closed_config,
    config_differences,
    published_config,
    read_published,
    withdrawn_config,
)
from tidegate_contracts.triton import ALIAS_PARAMETER
from tritonclient.grpc import model_config_pb2

OWNERS = """
name: "notebook-name"  # a comment
backend: "python"
input { name: "INPUT" data_type: TYPE_FP32 dims: [ 3 ] }
output [
  { name: "ONE" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "labels.txt" },
  { name: "OTHER" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "1/labels.txt" }
]
version_policy { latest { num_versions: 1 } }
parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }
parameters { key: "within" value { string_value: "$$TRITON_MODEL_DIRECTORY/1/env.tar.gz" } }
parameters { key: "gpt_model_path" value { string_value: "/models/m/1" } }
parameters { key: "tidegate.alias.prod" value { string_value: "666" } }
"""


def parsed(text: str) -> model_config_pb2.ModelConfig:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def test_it_names_the_versions_that_are_served_and_the_aliases_as_the_proxy_reads_them() -> None:
    config = parsed(published_config(OWNERS, model="m", owner=12, served=[12, 7], aliases={"production": 7}))
    assert config.name == "m"
    assert list(config.version_policy.specific.versions) == [7, 12]
    assert not config.version_policy.HasField("latest")
    assert config.parameters[f"{ALIAS_PARAMETER}production"].string_value == "7"
    # An entry cannot have aliases.
    text = published_config(OWNERS, model="m", owner=9, served=[9], aliases={})
    assert read_published(text) == Published(9, (9,), {})


def test_files_are_named_by_the_owners_paths() -> None:
    config = parsed(published_config(OWNERS, model="m", owner=12, served=[12], aliases={}))
    assert [output.label_filename for output in config.output] == ["labels.txt", "12/labels.txt"]
    message = {key: config.parameters[key].string_value for key in config.parameters}
    assert message["EXECUTION_ENV_PATH"] == "$$TRITON_MODEL_DIRECTORY/env.tar.gz"
    assert message["within"] == "$$TRITON_MODEL_DIRECTORY/12/env.tar.gz"
    assert message["gpt_model_path"] == "/models/m/12"


def test_all_else_is_the_owners() -> None:
    text = published_config(OWNERS, model="notebook-name", owner=2, served=[2], aliases={})
    changed = {difference.partition(":")[0] for difference in config_differences(OWNERS, text)}
    assert changed == {
        "output[1].label_filename",
        'parameters["tidegate.alias.prod"].string_value',
        'parameters["within"].string_value',
        "version_policy.latest.num_versions",
        "version_policy.specific.versions[0]",
    }


versions = st.integers(1, 10**15)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z-]{0,10}", fullmatch=True), versions), versions)
def test_the_same_is_the_same_text_and_reads_back(aliases: dict[str, int], owner: int) -> None:
    served = sorted({owner, *aliases.values()})
    text = published_config(OWNERS, model="m", owner=owner, served=served, aliases=aliases)
    shuffled = dict(reversed(aliases.items()))
    assert published_config(OWNERS, model="m", owner=owner, served=served[::-1], aliases=shuffled) == text
    assert read_published(text) == Published(owner, tuple(served), aliases)


def test_an_alias_of_a_version_that_is_not_served_is_refused() -> None:
    with pytest.raises(UsageError, match="alias prod of model m is version 3, which is not served"):
        published_config(OWNERS, model="m", owner=2, served=[2], aliases={"prod": 3})
    with pytest.raises(UsageError, match="would serve no version"):
        published_config(OWNERS, model="m", owner=2, served=[], aliases={})


def test_a_configuration_that_protobuf_cannot_read_is_refused_and_a_foreign_one_has_no_owner() -> None:
    with pytest.raises(UsageError, match=r"cannot be read: 2:1 : .*max_batchsize"):
        read_published('name: "m"\nmax_batchsize: 3')
    assert read_published('name: "m" version_policy { all {} }') == Published(None, (), {})


def test_equal_entries_differ_in_nothing_that_triton_reads() -> None:
    entry = 'name: "m" backend: "python"'
    one = published_config(entry, model="m", owner=1, served=[1, 2], aliases={"prod": 1})
    other = published_config(entry, model="m", owner=2, served=[1, 2], aliases={"prod": 1})
    assert config_differences(one, other) == []
    assert (read_published(one).owner, read_published(other).owner) == (1, 2)


def test_differences_are_listed_by_field() -> None:
    one = 'name: "m" input { name: "A" data_type: TYPE_FP32 dims: [ 3 ] } dynamic_batching {}'
    other = 'name: "m" input { name: "A" data_type: TYPE_INT8 dims: [ 3, 4 ] }'
    assert config_differences(one, other) == [
        "dynamic_batching: {} → nothing",
        "input[0].data_type: TYPE_FP32 → TYPE_INT8",
        "input[0].dims[1]: nothing → 4",
    ]
    assert config_differences(one, f"# the same\n{one}") == []


def test_a_closed_one_serves_nothing_that_can_be() -> None:
    closed = closed_config(published_config(OWNERS, model="m", owner=2, served=[2], aliases={"prod": 2}))
    assert list(parsed(closed).version_policy.specific.versions) == [10**18]
    assert read_published(closed) == Published(2, (), {})  # aliases of versions that are not served do not count


def test_a_withdrawn_one_is_an_ensemble_of_nothing_and_keeps_its_owner() -> None:
    withdrawn = withdrawn_config(published_config(OWNERS, model="m", owner=2, served=[2], aliases={"prod": 2}))
    assert (parsed(withdrawn).name, parsed(withdrawn).platform) == ("m", "ensemble")
    [step] = parsed(withdrawn).ensemble_scheduling.step
    assert not is_name(step.model_name)  # so no model can have this name
    assert read_published(withdrawn) == Published(2, (), {})
    assert withdrawn_config(withdrawn) == withdrawn
    assert read_published(withdrawn_config("none {")) == Published(None, (), {})


def test_checksums_of_an_entry_are_not_published() -> None:
    agents = 'model_repository_agents { agents { name: "checksum" parameters { key: "MD5:1/a" value: "0" } } }'
    assert "MD5" not in published_config(agents, model="m", owner=3, served=[3], aliases={})
