"""Sphinx' configuration for the site of the documentation: `make site`."""

from typing import Any, Final

project = "Tidegate"
author = "The authors of Tidegate"
extensions = ["myst_parser"]
include_patterns = [
    "docs/*.md", "README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "proxy/README.md",
    "policies/eviction/README.md", "client/README.md", "charts/tidegate/README.md",
]  # fmt: skip
root_doc = "docs/index"
html_extra_path = ["root"]  # An index.html at the site's root that leads to docs/index.html.
html_theme = "furo"
html_title = "Tidegate"
html_copy_source = html_show_sourcelink = html_show_sphinx = False
html_show_copyright = False
# Search results fetch an excerpt of each page, which works from a server but not from files.
_NO_SUMMARY = "if (location.protocol === 'file:') DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false"
html_js_files = [(None, {"body": _NO_SUMMARY})]
myst_heading_anchors = 4
myst_enable_extensions = ["alert"]  # callouts, such as `> [!NOTE]`
pygments_style, pygments_dark_style = "default", "native"
# Links to directories of the repository, which the site lacks. tests/docs/test_docs_links.py finds broken links.
suppress_warnings = ["misc.highlighting_failure", "myst.header", "myst.xref_missing"]


def setup(app: Any) -> None:
    """Add the contents to the start page, which has none in the repository."""

    def read(_: Any, name: str, source: list[str]) -> None:
        if name == root_doc:
            source[0] += CONTENTS

    app.connect("source-read", read)


def _contents(caption: str, *pages: str) -> str:
    return "\n".join(["", "```{toctree}", f":caption: {caption}", ":hidden:", "", *pages, "```", ""])


CONTENTS: Final = (
    _contents("Get started", "Overview <../README>", "install", "models")
    + _contents("Concepts", "concepts", "eviction", "security", "comparison")
    + _contents(
        "Operate", "platform", "images", "gpus", "s3", "sizing", "access", "preflight", "helm", "pulumi", "clusters",
        "rollout", "ci", "capacity", "scaling", "simulator", "custom-policy", "domino", "runbooks", "upgrading",
        "uninstall",
    )
    + _contents("Use models", "export", "openai", "proxy-api")
    + _contents(
        "Reference", "definition", "Chart values <../charts/tidegate/README>", "cli", "metrics", "guardrails",
        "network", "json", "Inference proxy <../proxy/README>", "Eviction policy <../policies/eviction/README>",
        "Client <../client/README>",
    )
    + _contents(
        "Help", "troubleshooting", "faq", "Changelog <../CHANGELOG>", "Security policy <../SECURITY>",
        "Contributing <../CONTRIBUTING>",
    )
)  # fmt: skip
