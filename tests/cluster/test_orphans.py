from .test_down import WHAT_A_NAMESPACE_HAS, everything_in
from .world import Site


def preview(site: Site, *arguments: str) -> tuple[str, str]:
    path = site.folder / "preview.md"
    ended = site.run("preview", "--cluster", site.cluster.context, "--summary", str(path), *arguments)
    return ended.out, path.read_text("utf-8")


def test_an_environment_that_left_the_definition_is_seen_and_taken_down_and_its_volumes_stay(site: Site) -> None:
    """The other environment stays untouched."""
    site.up(stack=None)
    namespace, kept = f"{site.prefix}-dev", ("PersistentVolume", "PersistentVolumeClaim")
    before = site.state("uid")
    site.edit(f"  - {{name: dev, namespace: {namespace}}}\n", "")
    site.edit("environments: [dev, prod]", "environments: [prod]")
    if site.engine == "pulumi":  # A user who tidies up removes this file too.
        (site.checkout / "stacks" / "Pulumi.dev-lab.yaml").unlink()

    output, page = preview(site)
    command = f"tidegate down {site.definition} --cluster tests --stack dev-lab"
    assert page.startswith("**⚠️ 2 stacks: 1 ORPHANED, 1 unchanged**")
    assert "- **ORPHANED** <code>dev-lab</code> **is no longer described" in page
    assert f"namespace {namespace}, since " in output
    assert f"objects by {site.engine.title()})" in output
    assert f"To remove them: {command}\n" in output
    ended = site.down(stack="dev-lap", ok=False)
    assert ended.code == 2
    assert 'Did you mean "dev-lab"? There are: prod-lab, dev-lab. Only the cluster has: dev-lab.' in ended.err
    assert site.state("uid") == before, "nothing but a preview"

    ended = site.down()
    assert "Down in tests: dev-lab." in ended.out
    assert f"  PersistentVolume {namespace}-models\n" in ended.out
    claims = {("PersistentVolumeClaim", "models"), ("PersistentVolumeClaim", "spare")}
    assert everything_in(site, namespace) == WHAT_A_NAMESPACE_HAS | claims
    left = {key: uid for key, uid in before.items() if key[0] in kept or key[1].endswith("-prod")}
    assert site.state("uid") == left
    output, page = preview(site)
    assert page.startswith("**✅ 1 stack: 1 unchanged**")
    assert "dev-lab" not in output + page
    assert site.down(ok=False).code == 2
