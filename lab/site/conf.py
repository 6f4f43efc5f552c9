"""How Sphinx builds the site of the documentation from the Markdown of the repository: `make site`."""

import re
import shutil
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = (
    "docs/*.md", "docs/pictures/*", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "proxy/README.md",
    "policies/eviction/README.md", "client/README.md", "charts/tidegate/README.md", "stacks/inference.yaml",
)  # fmt: skip
_CODE = re.compile(r"^(```+).*?^\1$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[((?:`[^`\n]*`|[^\[\]`])*)\]\((?!https?://|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")

project = "Tidegate"
author = "The authors of Tidegate"
extensions = ["myst_parser"]
root_doc = "docs/index"
html_theme = "furo"
html_title = "Tidegate"
html_copy_source = html_show_sourcelink = html_show_sphinx = False
html_show_copyright = False
# What a page says around the words is fetched: a server gives it, files do not.
_NO_SUMMARY = "if (location.protocol === 'file:') DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false"
html_js_files = [(None, {"body": _NO_SUMMARY})]
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
pygments_style, pygments_dark_style = "default", "native"
suppress_warnings = ["misc.highlighting_failure", "myst.header"]


def stage(pages: Path) -> None:
    """Copy the pages to a folder, where they lie as in the repository: links between them are what they are there."""
    for pattern in SOURCES:
        for file in sorted(ROOT.glob(pattern)):
            to = pages / file.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)


def as_page(text: str, pages: Path, home: Path) -> str:
    """Return the text of a page, which lies in the folder `home` of all `pages`, as the site has it: a link to a source
    file, which is not there, is its words alone; anchors and what no test runs are said in Sphinx's words."""

    def link(found: re.Match[str]) -> str:
        words, path, _ = found.groups()
        target = (home / path).resolve()
        return words if not target.is_relative_to(pages) or not target.exists() else found[0]

    parts, end = [], 0
    for code in _CODE.finditer(text):
        parts += [_prose(_LINK.sub(link, text[end : code.start()])), code[0]]
        end = code.end()
    return "".join([*parts, _prose(_LINK.sub(link, text[end:]))])


def _prose(text: str) -> str:
    text = re.sub(r'^<a id="([^"]+)"></a>$', r"(\1)=", text, flags=re.MULTILINE)
    text = re.sub(r'<a id="([^"]+)"></a>', r"[]{#\1}", text)
    return re.sub(r"^<!-- not run: (.*?) -->$", r"*No test runs this: \1.*\n", text, flags=re.MULTILINE)


def setup(app: Any) -> None:
    """Have pages changed as they are read."""

    def read(app: Any, name: str, source: list[str]) -> None:
        pages = Path(app.srcdir).resolve()
        source[0] = as_page(source[0], pages, (pages / name).parent)
        if name == root_doc:
            source[0] += CONTENTS

    app.connect("source-read", read)


def _contents(caption: str, *pages: str) -> str:
    return "\n".join(["", "```{toctree}", f":caption: {caption}", ":hidden:", "", *pages, "```", ""])


CONTENTS: Final = (
    _contents("Concepts", "concepts")
    + _contents(
        "Tasks", "platform", "helm", "pulumi", "rollout", "preflight", "ci", "capacity", "scaling", "simulator",
        "models", "export", "openai", "eviction", "domino", "upgrading",
    )
    + _contents(
        "Reference", "definition", "Chart values <../charts/tidegate/README>", "cli", "proxy-api", "metrics",
        "guardrails", "network", "json", "Inference proxy <../proxy/README>",
        "Eviction policy <../policies/eviction/README>", "Client <../client/README>",
    )
    + _contents("At night", "runbooks")
    + _contents("The project", "README <../README>", "Changelog <../CHANGELOG>", "Contributing <../CONTRIBUTING>")
)  # fmt: skip
