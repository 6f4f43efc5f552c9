import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PACKAGES = [ROOT / name / "README.md" for name in ("client", "proxy", "policies/eviction")]
OTHERS = [ROOT / "CHANGELOG.md", ROOT / "charts/tidegate/README.md"]  # The site has them, too.


def links(page: Path) -> list[tuple[Path, str]]:
    """Return the files of this repository that a page links to, each with the part after `#`."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"\]\((?!https?://)([^)#\s]*)#?([^)\s]*)\)", text)
    return [((page.parent / path).resolve() if path else page, anchor) for path, anchor in found]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: its headings as GitHub writes them, and explicit anchors."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    written = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return written | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


@pytest.mark.parametrize("page", [*PAGES, *PACKAGES, *OTHERS], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    missing = [
        f"{path.relative_to(ROOT)}#{anchor}"
        for path, anchor in links(page)
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path))
    ]
    assert missing == []
