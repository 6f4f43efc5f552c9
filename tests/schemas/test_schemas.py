"""The validators must catch what a strict API server would refuse, and let everything else pass."""

import copy
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests import schemas
from tests.schemas import builtin, custom
from tests.schemas.kinds import gvk

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "proxy", "namespace": "dev"},
    "spec": {
        "selector": {"matchLabels": {"app": "proxy"}},
        "template": {
            "metadata": {"labels": {"app": "proxy"}},
            "spec": {
                "containers": [
                    {
                        "name": "proxy",
                        "image": "example/proxy:1",
                        "ports": [{"containerPort": 8080}],
                        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}},
                        "resources": {"limits": {"cpu": 1, "memory": "1Gi", "nvidia.com/mig-1g.10gb": 1}},
                    }
                ]
            },
        },
    },
}

# Objects as Tidegate renders them, and one misspelt field in each.
CUSTOM: list[tuple[dict[str, Any], str]] = [
    (
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "spec": {
                "parentRefs": [{"name": "public"}],
                "rules": [
                    {
                        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                        "backendRefs": [{"name": "proxy", "port": 80}],
                        "timeouts": {"request": "300s"},
                    }
                ],
            },
        },
        "spec.rules.0.backendRefs.0.prot",
    ),
    (
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PodMonitor",
            "spec": {
                "selector": {"matchLabels": {"app": "triton"}},
                "podMetricsEndpoints": [{"port": "metrics", "interval": "15s"}],
            },
        },
        "spec.podMetricsEndpoints.0.intervall",
    ),
    (
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "spec": {
                "groups": [{"name": "g", "rules": [{"alert": "A", "expr": 1, "for": "5m", "labels": {"any": "x"}}]}]
            },
        },
        "spec.groups.0.rules.0.anotations",
    ),
    (
        {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "spec": {"secretName": "tls", "issuerRef": {"name": "ca"}, "dnsNames": ["a.example"]},
        },
        "spec.dnsName",
    ),
    (
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "spec": {
                "scaleTargetRef": {"name": "proxy"},
                "triggers": [{"type": "prometheus", "metadata": {"anything": "goes"}}],
            },
        },
        "spec.maxReplicasCount",
    ),
    (
        {
            "apiVersion": "security.istio.io/v1",
            "kind": "PeerAuthentication",
            "spec": {"selector": {"matchLabels": {"app": "proxy"}}, "mtls": {"mode": "STRICT"}},
        },
        "spec.mtls.mod",
    ),
]
CUSTOM_IDS = [obj["kind"] for obj, _ in CUSTOM]


def named(obj: dict[str, Any]) -> dict[str, Any]:
    """Give an object a name."""
    return obj | {"metadata": {"name": "it", "namespace": "dev", "labels": {"a": "b"}}}


def misspelt(obj: dict[str, Any], path: str) -> dict[str, Any]:
    """Return a copy of an object with a field more, at a path such as 'spec.rules.0.nmae'."""
    *steps, last = path.split(".")
    changed = copy.deepcopy(obj)
    node: Any = changed
    for step in steps:
        node = node[int(step) if step.isdigit() else step]
    node[last] = "x"
    return changed


def written(folder: Path, *objects: object) -> Path:
    """Write objects into a folder, one a file."""
    for number, obj in enumerate(objects):
        (folder / f"{number:03}.yaml").write_text(yaml.safe_dump(obj), "utf-8")
    return folder


def test_correct_objects_pass_every_validator(tmp_path: Path) -> None:
    """Both kinds of objects, in process and through the real kubeconform."""
    objects = [DEPLOYMENT, *(named(obj) for obj, _ in CUSTOM)]
    assert schemas.check(objects) == schemas.Report(len(objects), (), ())
    report = schemas.kubeconform(written(tmp_path, *objects))
    assert report.ok
    assert report == schemas.Report(len(objects), (), ())


@pytest.mark.parametrize(
    "path",
    [
        "spec.replica",
        "metadata.lables",
        "spec.template.spec.containers.0.imagePulPolicy",
        "spec.template.spec.containers.0.readinessProbe.httpGet.prot",
        "spec.template.spec.securityContext",
    ],
)
def test_a_misspelt_field_of_a_built_in_kind_is_caught(tmp_path: Path, path: str) -> None:
    """At any depth, with its place and its name in the message; the last one is right but of a wrong type."""
    wrong = misspelt(DEPLOYMENT, path)
    (violation,) = schemas.kubernetes_validate_strict(wrong)
    assert violation.startswith("Deployment dev/proxy: ")
    assert path.split(".")[-1] in violation
    (reported,) = schemas.kubeconform(written(tmp_path, wrong)).violations
    assert "000.yaml: Deployment proxy: " in reported
    assert path.split(".")[-1] in reported


@pytest.mark.parametrize("obj", [DEPLOYMENT, misspelt(DEPLOYMENT, "spec.template.spec.x")], ids=["right", "wrong"])
def test_our_use_of_the_schemas_agrees_with_kubernetes_validate_itself(obj: dict[str, Any]) -> None:
    """The package's own function stops at the first error and is slower; the verdict is the same."""
    package = import_module("kubernetes_validate")
    try:
        package.validate(obj, builtin.KUBERNETES, strict=True)
        theirs = True
    except package.ValidationError:
        theirs = False
    assert theirs is not bool(schemas.kubernetes_validate_strict(obj))


@pytest.mark.parametrize(("obj", "path"), CUSTOM, ids=CUSTOM_IDS)
@pytest.mark.parametrize("where", ["spec", "metadata"])
def test_a_misspelt_field_of_a_custom_kind_is_caught(
    obj: dict[str, Any], path: str, where: str, tmp_path: Path
) -> None:
    """In the part that the CRD describes, and in the metadata, which every CRD leaves to Kubernetes."""
    wrong = misspelt(named(obj), path if where == "spec" else "metadata.lables")
    word = path.split(".")[-1] if where == "spec" else "lables"
    (violation,) = schemas.crd_violations(wrong)
    assert word in violation
    (reported,) = schemas.kubeconform(written(tmp_path, wrong)).violations
    assert word in reported


def test_all_violations_of_all_objects_are_reported_at_once(tmp_path: Path) -> None:
    """One run, the whole list: nobody wants to mend one field at a time."""
    wrong = misspelt(misspelt(DEPLOYMENT, "spec.one"), "spec.template.spec.two")
    other = misspelt(named(CUSTOM[0][0]), "spec.three")
    assert len(schemas.check([wrong, other]).violations) == 3
    violations = schemas.kubeconform(written(tmp_path, wrong, other)).violations
    assert [word for word in ("one", "two", "three") if any(f"'{word}'" in line for line in violations)] == [
        "one",
        "two",
        "three",
    ]


def test_a_kind_without_a_schema_is_a_violation(tmp_path: Path) -> None:
    """Silence would look like approval; the wrong version of a known kind is no better."""
    unknown = [named({"apiVersion": "example.com/v1", "kind": "Foo"}), DEPLOYMENT | {"apiVersion": "apps/v1beta1"}]
    report = schemas.check(unknown)
    assert len(report.violations) == 2
    assert not report.skipped
    assert len(schemas.kubeconform(written(tmp_path, *unknown)).violations) == 2
    for obj in unknown:
        with pytest.raises(schemas.NoSchemaError):
            schemas.crd_violations(obj)
        with pytest.raises(schemas.NoSchemaError):
            schemas.kubernetes_validate_strict(obj)


def test_a_kind_whose_group_only_begins_like_a_built_in_one_has_no_schema() -> None:
    """The schema files know the first label of a group only: 'apps.example.com' is not 'apps'."""
    with pytest.raises(schemas.NoSchemaError):
        schemas.kubernetes_validate_strict(DEPLOYMENT | {"apiVersion": "apps.example.com/v1"})


def test_kinds_that_are_known_to_have_no_schema_are_skipped_and_reported(tmp_path: Path) -> None:
    """Domino's Mutation: nothing is known about it, and the report says so; of it alone, nothing was checked."""
    mutation = named({"apiVersion": "apps.dominodatalab.com/v1alpha1", "kind": "Mutation", "rules": []})
    for report in (schemas.check([mutation]), schemas.kubeconform(written(tmp_path, mutation))):
        assert (report.checked, report.violations, report.ok) == (0, (), False)
        (line,) = report.skipped
        assert "Mutation" in line
        assert "no schema: Domino publishes its CRD in no package" in line


def test_nothing_to_check_is_an_error_and_not_a_success(tmp_path: Path) -> None:
    """An empty folder, a list of no files: somebody's glob is wrong."""
    with pytest.raises(ValueError, match="nothing to check"):
        schemas.kubeconform(tmp_path)
    with pytest.raises(ValueError, match="nothing to check"):
        schemas.kubeconform([])
    assert not schemas.check([]).ok


def test_a_key_given_twice_and_a_file_that_is_no_yaml_are_violations(tmp_path: Path) -> None:
    """What a YAML library may quietly drop, and what it cannot read."""
    (tmp_path / "twice.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: a, x: b}\n")
    (tmp_path / "none.yaml").write_text("apiVersion: v1\nkind: [\n")
    violations = schemas.kubeconform([tmp_path / "twice.yaml", tmp_path / "none.yaml"]).violations
    assert len(violations) == 2
    assert any("already defined" in line or "already set" in line for line in violations)


def test_every_schema_is_one_that_both_validators_can_use_and_none_points_at_the_web(tmp_path: Path) -> None:
    """A pattern that only one of them understands, or a reference that cannot be followed, would show up late."""
    objects = []
    for file in sorted(custom.folder().rglob("*.json")):
        schema = json.loads(file.read_text("utf-8"))
        assert "$ref" not in file.read_text("utf-8")
        objects.append(named({key: schema["properties"][key]["const"] for key in ("apiVersion", "kind")}))
    assert len({gvk(obj) for obj in objects}) == len(objects) > 50
    report = schemas.kubeconform(written(tmp_path, *objects))
    assert report.checked == len(objects)
    ours = schemas.check(objects).violations
    # Empty as they are, they may lack required fields; nothing else can be wrong with them.
    assert all("missing propert" in line for line in report.violations)
    assert all("is a required property" in line for line in ours)
    for file in builtin.folder().glob("*.json"):
        text = file.read_text("utf-8")
        assert '"$id"' not in text
        assert '"$ref": "/' not in text
        assert '"$ref": "http' not in text


@pytest.mark.parametrize(
    ("openapi", "right", "wrong"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": "x"}, {"b": "x"}),
        ({"type": "object"}, {}, {"b": "x"}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"b": "x"}, {"b": 1}),
        ({"type": "object", "additionalProperties": True}, {"b": "x"}, []),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"b": {"c": 1}}, "x"),
        (
            {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {"a": {"type": "object", "properties": {}}},
            },
            {"a": {}, "b": 1},
            {"a": {"b": 1}},
        ),
        ({"type": "array", "items": {"type": "object", "properties": {"a": {}}}}, [{"a": 1}], [{"b": 1}]),
        ({"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+$"}, 5, "x"),
        ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, "5", 1.5),
        ({"type": "string", "nullable": True, "enum": ["a"]}, None, "b"),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, 1, 0),
        ({"type": "integer", "maximum": 9, "exclusiveMaximum": False}, 9, 10),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            {"a": "x"},
            {"a": "x", "b": "x"},
        ),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, {"kind": "K", "metadata": {}}, 1),
    ],
)
def test_a_crds_schema_is_closed_where_the_api_server_closes_it(openapi: custom.Schema, right: Any, wrong: Any) -> None:
    """Every way in which a CRD's schema differs from JSON schema, by one example that passes and one that does not."""
    validator = Draft202012Validator(custom.strict(openapi))
    assert validator.is_valid(right)
    assert not validator.is_valid(wrong)


def test_the_schemas_are_made_once_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders carry the versions that they come from, under the cache folder of the tools."""
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    builtin.folder.cache_clear()
    try:
        made = builtin.folder()
        stamp = (made / "pod-v1.json").stat().st_mtime_ns
        builtin.folder.cache_clear()
        assert builtin.folder() == made
        assert (made / "pod-v1.json").stat().st_mtime_ns == stamp
        assert made.parent == tmp_path / "schemas"
        assert made.name.startswith("kubernetes-1.36-")
    finally:
        builtin.folder.cache_clear()
