import re
from collections.abc import Callable
from typing import Any

import pulumi_kubernetes as k8s
import pytest

from charts.generate import templates_of
from charts.placeholders import placeholder
from charts.recording import Recording, Value
from components import EnvironmentArgs
from components.values import each, of_kind, when
from stacks.definition.pools import OnDemand


@pytest.fixture
def root() -> Any:
    return placeholder(Recording(), Value("$.Values", EnvironmentArgs))


@pytest.mark.parametrize(
    ("use", "place"),
    [
        (lambda root: bool(root.name), "$.Values.name"),
        (lambda root: "x" if root.servers else "y", "$.Values.servers"),
        (lambda root: list(root.servers), "$.Values.servers"),
        (lambda root: [*root.proxy.node_selector], "$.Values.proxy.nodeSelector"),
        (lambda root: root.name.upper(), "$.Values.name"),
        (lambda root: root.name == "dev", "$.Values.name"),
        (lambda root: root.proxy.concurrency + 3, "$.Values.proxy.concurrency"),
        (lambda root: root.servers[0], "$.Values.servers"),
        (lambda root: f"{root.proxy.auth.domino_principal}", "($.Values.proxy.auth).dominoPrincipal"),
        (lambda root: root.monitoring.rules, "$.Values.monitoring"),
    ],
)
def test_a_placeholder_refuses_to_be_known(root: Any, use: Callable[[Any], object], place: str) -> None:
    with pytest.raises(TypeError, match=rf"^{re.escape(place)} is not known yet: use a helper of components.values"):
        use(root)


def test_a_field_that_only_some_kinds_have_needs_of_kind(root: Any) -> None:
    with pytest.raises(AttributeError, match=r"not all kinds of \(\$.Values.proxy.exposure\) have host: use of_kind"):
        root.proxy.exposure.host  # noqa: B018
    with pytest.raises(AttributeError, match=r"\$.Values.proxy have colour"):
        root.proxy.colour  # noqa: B018


def test_a_class_that_a_value_can_never_be_is_refused(root: Any) -> None:
    with pytest.raises(TypeError, match="cannot be of class OnDemand"):
        of_kind(root.proxy.exposure, OnDemand, lambda _: "x")


def test_a_loop_inside_a_loop_of_the_same_variable_is_refused(root: Any) -> None:
    with pytest.raises(TypeError, match="Rename one of the two fields"):
        each(root.servers, lambda _: each(root.servers, lambda server: server.name))


def config_map(data: Callable[[Any], Any]) -> str:
    def program(args: EnvironmentArgs) -> None:
        k8s.core.v1.ConfigMap("c", metadata={"name": "c"}, data=data(args))

    (text,) = (text for name, text in templates_of(program).items() if name.endswith(".yaml"))
    return text.partition("\ndata:\n")[2]


def test_another_program_becomes_a_template() -> None:
    def data(args: EnvironmentArgs) -> Any:
        return {
            "name": args.name,
            "host": f"100% {args.name}.{args.namespace.name}",
            "number": f"{args.proxy.concurrency}",
            "braces": "{{ .Values }}",
            "script": "first\n  second\n",
            "profile": when(args.monitoring, lambda found: f"{found.interval_seconds}s"),
        }

    assert config_map(data) == (
        "  name: {{ $.Values.name | quote }}\n"
        '  braces: {{ "{{ .Values }}" | quote }}\n'
        '  host: {{ printf "100%% %s.%s" $.Values.name $.Values.namespace.name | quote }}\n'
        "  number: {{ int64 ($.Values.proxy.concurrency | default 1024) | quote }}\n"
        "  script: |\n"
        "    first\n"
        "      second\n"
        "  {{- if ne $.Values.monitoring nil }}\n"
        '  profile: {{ printf "%ds" (int64 ($.Values.monitoring.intervalSeconds | default 30)) | quote }}\n'
        "  {{- end }}\n"
    )
