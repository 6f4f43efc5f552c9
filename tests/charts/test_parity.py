"""Helm renders from an environment's values the objects that the components declare for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from components import EnvironmentArgs
from components.args import ClaimArgs, TritonServerArgs
from stacks.definition.base import Section
from stacks.definition.environment import Domino
from stacks.definition.proxy import IngressExposure
from stacks.definition.servers import AwsIdentity
from stacks.resolve import resolve
from stacks.validate import read_definition
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree
from tests.strategies.renaming import renamed

from .rendering import DEFINITIONS, ROOT, declared, object_differences, rendered_args

# Texts that YAML, Helm or a shell could misread.
NASTY = [
    "", " ", "yes", "No", "null", "~", "1e3", "0x1", "0o17", "012", "1_000", "12:30:45", ".5", ".inf", "2026-11-21",
    "=", "<<", "*", "&anchor", "!tag", "%d %s 100%", "@at", "`back`", "- item", "key: value", "# no comment", "}}",
    "{{/*", "{{ .Values.name }}", "{{- end }}", '"quoted"', "it's", "C:\\path\\n", "$HOME $(id) ${x}", "<script>&amp;",
    "line\nline\n", "\ttab\r\nreturn", "  spaces  ", "---\nkind: Secret",
    "grün ≠ 😀", "\u2028\u2029\u0085\ufeff\x7f\x00\x1b",
]  # fmt: skip
Part = TypeVar("Part", bound=Section)
ANY_TEXT = st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
# Helm writes JSON files from YAML blocks, which cannot contain unprintable characters.
PRINTABLE = ANY_TEXT.map(lambda text: "".join(c for c in text if c.isprintable() or c in "\n\t"))


def changed(part: Part, **changes: Any) -> Part:
    return part.model_copy(update=changes)


def assert_alike(args: EnvironmentArgs, *arguments: str) -> None:
    assert object_differences(declared(args), rendered_args(args, *arguments)) == []


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_helm_renders_every_stack_of_our_definitions_as_the_components_declare_it(path: Path) -> None:
    definition = read_definition(path)
    for stack in definition.stacks:
        assert_alike(resolve(stack, definition.lock))


@settings(
    parent=examples(40),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(definition_trees(), st.randoms(use_true_random=False))
def test_helm_renders_any_valid_environment_as_the_components_declare_it(tree: Tree, chance: Any) -> None:
    definition = read_tree(chance.choice([tree, renamed(tree)]))
    assert_alike(resolve(chance.choice(definition.stacks), definition.lock))


@pytest.fixture(scope="module")
def everything() -> EnvironmentArgs:
    definition = read_definition(ROOT / "tests/definitions/everything.yaml")
    return resolve(definition.stacks[0], definition.lock)


def with_texts(args: EnvironmentArgs, texts: list[str], printable: list[str]) -> EnvironmentArgs:
    noted = args.namespace.annotations
    assert isinstance(noted, dict)
    keyed = {f"example.com/key-{number}": text for number, text in enumerate(texts)}
    variables = {f"TEXT_{number}": text for number, text in enumerate(texts)}
    identity = AwsIdentity.model_construct(cloud="aws", role_arn=texts[-1])
    servers = [
        changed(
            server,
            triton=changed(server.triton, extra_arguments=texts, environment=variables),
            identity=identity,
        )
        for server in args.servers
        if isinstance(server, TritonServerArgs)
    ]
    rules = [
        changed(args.proxy.access[0], name=text, principals=printable, groups=printable, servers=[text])
        for text in printable
    ]
    assert isinstance(args.proxy.exposure, IngressExposure)
    exposure = changed(args.proxy.exposure, annotations=keyed)
    return changed(
        args,
        namespace=changed(args.namespace, annotations={**noted, **keyed}, labels=keyed),
        servers=servers,
        pods=changed(
            args.pods, annotations=keyed, environment={f"ALL_{name}": text for name, text in variables.items()}
        ),
        proxy=changed(args.proxy, access=rules, exposure=exposure, priority_class=texts[0]),
        datasets=[changed(dataset, mount_options=texts) for dataset in args.datasets],
    )


@settings(parent=examples(15), suppress_health_check=list(HealthCheck))
@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=8), printable=st.lists(PRINTABLE, min_size=1, max_size=8))
@example(texts=NASTY, printable=[text for text in NASTY if all(c.isprintable() or c in "\n\t" for c in text)])
def test_any_text_arrives_as_it_was_typed(everything: EnvironmentArgs, texts: list[str], printable: list[str]) -> None:
    assert_alike(with_texts(everything, texts, printable), "--skip-schema-validation")


def test_numbers_arrive_as_they_were_typed(everything: EnvironmentArgs) -> None:
    """Helm reads every number as a floating-point number, and would write a big one with an exponent."""
    for number in (0, 1, 1_000_000, 2**31, 2**53):
        some = number or 1  # A value that must not be zero has a default, which also replaces zero.
        servers = [
            changed(
                server,
                pools=[
                    changed(
                        pool,
                        replicas=number,
                        models=[changed(model, footprint=f"{some}", idle_seconds=number) for model in pool.models],
                    )
                    for pool in server.pools
                ],
            )
            for server in everything.servers
        ]
        proxy = changed(everything.proxy, body_limit=f"{some}", autoscaling=None, replicas=some)
        assert_alike(changed(everything, servers=servers, proxy=proxy), "--skip-schema-validation")


SMALLER: list[Callable[[EnvironmentArgs], EnvironmentArgs]] = [
    lambda args: changed(args, servers=[], eviction_policy_image=None),
    lambda args: changed(args, servers=[changed(server, pools=[]) for server in args.servers]),
    lambda args: changed(
        args,
        datasets=[],
        claims=[*args.claims, *(ClaimArgs(name=dataset.name) for dataset in args.datasets)],
        domino=None,
        monitoring=None,
    ),
    lambda args: changed(args, network=changed(args.network, reach=[], callers=[]), domino=None),
    lambda args: changed(args, domino=Domino()),
    lambda args: changed(args, mesh=None),
    lambda args: changed(args, proxy=changed(args.proxy, access=[], tls=None, autoscaling=None)),
]


@pytest.mark.parametrize("smaller", SMALLER)
def test_empty_lists_and_missing_parts_are_left_out_alike(
    everything: EnvironmentArgs, smaller: Callable[[EnvironmentArgs], EnvironmentArgs]
) -> None:
    assert_alike(smaller(everything), "--skip-schema-validation")


@pytest.mark.parametrize("number", [2**53 + 1, 0.5])
def test_numbers_that_readers_of_json_do_not_read_alike_are_refused(everything: EnvironmentArgs, number: Any) -> None:
    limit = changed(everything.proxy.rate_limit, burst=number)
    with pytest.raises(ValueError, match="use a whole number of at most 2\\^53"):
        declared(changed(everything, proxy=changed(everything.proxy, rate_limit=limit)))
