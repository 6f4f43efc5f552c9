import json
import re
from collections.abc import Sequence
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from policies.guardrails import Finding
from policies.guardrails.checking import Level
from rollout.changes.page import LIMIT, code, failed_page, page, size
from rollout.changes.stack_change import StackChange, stack_change
from stacks.problems import escaped
from tests.counts import examples

from ..conftest import made

Object = dict[str, Any]
TAGS = {"p", "strong", "code", "h4", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "sub", "details"}
TAGS |= {"summary", "b", "em", "pre", "blockquote"}


class Html(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.codes: list[str] = []
        self.rest = ""
        self.inside = 0
        self.feed(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text))

    def handle_starttag(self, tag: str, attrs: Sequence[object]) -> None:
        self.tags.append(tag)
        assert not attrs
        if tag in ("code", "pre"):
            self.inside += 1
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside -= tag in ("code", "pre")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.codes[-1] += data
        else:
            self.rest += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl}")


def changed(old: Sequence[Object], new: Sequence[Object], name: str = "prod-east", **more: Any) -> StackChange:
    return stack_change(name, old, new, **more)


NASTY = (
    st.text(max_size=40)
    | st.text(st.sampled_from("`|<>@#*_[]()!~\\&$:-+ \n\r\t.wW"), max_size=40)
    | st.sampled_from(["</details><script>x</script>", "a | b", "`", "@team", "<!-- x -->", "![x](http://x.test)"])
    | st.sampled_from(["\n# x", "\n/close", "www.x.test"])
)


@given(text=NASTY)
def test_foreign_text_as_code_is_that_text_and_nothing_else(text: str) -> None:
    html = Html(f"- {code(text)}")
    assert html.tags == ["ul", "li", *(["code"] if text else [])]
    # Code keeps its text except spaces at its ends, which no reader sees.
    assert "".join(html.codes).strip() == escaped(text).strip()


@examples(60)
@given(texts=st.lists(NASTY.filter(bool), min_size=8, max_size=8))
def test_a_definition_cannot_inject_anything_into_the_page(texts: list[str]) -> None:
    kind, name, key, old, new, gone, stack, why = texts
    finding = Finding(why, "mandatory", kind, "ns", name, what=why, do=why)
    spec = {"template": {"spec": {"containers": [{"name": key, "image": old}]}}}
    later = {"template": {"spec": {"containers": [{"name": key, "image": new}]}}}
    before = [made("StatefulSet", name, spec=spec), made(f"x{gone}", gone), made("ConfigMap", key, data={key: old})]
    after = [made("StatefulSet", name, spec=later), made("ConfigMap", key, data={key: new})]
    html = Html(page([changed(before, after, stack, findings=[finding])], code(why), [why]))
    assert set(html.tags) <= TAGS
    assert html.tags.count("details") == html.tags.count("summary")
    assert html.tags.count("pre") == 2, "foreign words about it stand in one piece, and so do all fields"
    assert not re.search(r"[@#!~%$&]\w", html.rest)


# ---- content ----


def served(*models: str) -> Object:
    table = {"models": [{"name": name, "server": "s", "pool": "p"} for name in models]}
    return made("ConfigMap", "routing", data={"routing.json": json.dumps(table)})


def volume(path: str, name: str = "models") -> Object:
    return made("PersistentVolume", name, spec={"nfs": {"path": path}, "persistentVolumeReclaimPolicy": "Retain"})


def test_a_model_that_is_no_longer_served_is_as_loud_as_a_deletion() -> None:
    both = [changed([served("a", "b", "c")], [served("a")], name) for name in ("east", "west")]
    text = page(both, "x")
    assert text.startswith("**⚠️ 2 models NO LONGER SERVED · 2 stacks: 2 changed")
    loud = text[text.index("#### Deleted, replaced, no longer served") : text.index("#### Changes")]
    assert "- <code>east</code>, <code>west</code> <code>model b</code>: **IS NO LONGER SERVED**\n" in loud
    assert text.count("model b") == 1


def test_a_replaced_dataset_comes_first_with_both_volumes() -> None:
    before = [made("Service", "gone"), volume("/old"), served("a")]
    text = page([changed(before, [volume("/new"), served()])], "x")
    assert text.startswith("**⚠️ 1 dataset REPLACED · 1 model NO LONGER SERVED · 1 stack")
    lines = text[text.index("- **") :].splitlines()
    assert lines[0].startswith("- **DATASET REPLACED** <code>prod-east</code> <code>PersistentVolume models</code>")
    assert "; spec.nfs.path /old → /new**" in lines[0]
    assert "IS NO LONGER SERVED" in lines[1]
    assert lines[2] == "- **DELETED** <code>prod-east</code> <code>Service gone</code>"


def test_a_stack_that_is_no_longer_described_loses_nothing_in_its_cluster() -> None:
    before = [made("Service", "one"), made("StatefulSet", "pool"), served("a")]
    text = page([stack_change("old", before, None)], "x")
    assert text.startswith("**⚠️ 1 stack: 1 REMOVED**")
    assert "- **REMOVED** <code>old</code> **is no longer described: its 3 objects stay" in text
    assert "DELETED" not in text
    assert "NO LONGER SERVED" not in text


def test_new_findings_come_first_then_other_mandatory_ones_and_the_rest_is_counted() -> None:
    def found(rule: str, severity: Level, name: str = "it", **words: str) -> Finding:
        return Finding(rule, severity, "Service", "ns", name, what="x", **words)

    old = [found("standing", "mandatory"), *(found("known", "advisory", f"s{n}") for n in range(30))]
    old.append(found("let", "waived"))
    new = [found("hint", "advisory"), found("stop", "mandatory", do="Do it."), found("kept", "waived", waiver="by ml")]
    after = [*old, *new]
    changes = [changed([made("Service")], [made("Service")], n, findings=after, known=old) for n in ("a", "b")]
    text = page(changes, "x")
    assert re.findall(r"x \(([a-z]+)\)", text) == ["stop", "hint", "kept", "standing"]
    assert "- **NEW mandatory** <code>a</code>, <code>b</code> <code>Service/it</code>: **x (stop) Do it.**" in text
    assert ": x (kept) by ml\n" in text
    assert text.startswith("**⛔ 2 mandatory guardrail findings · ")


def test_a_line_names_few_stacks_and_counts_the_others() -> None:
    text = page([changed([made("Service")], [], f"p{n}") for n in range(9)], "x")
    names = ", ".join(f"<code>p{n}</code>" for n in range(6))
    assert f"- **DELETED** {names} and 3 more <code>Service it</code>" in text


# ---- length ----


@pytest.mark.parametrize(
    ("stacks", "objects", "fields"), [(1, 1, 5_000), (1, 2_000, 1), (3, 120, 40), (300, 30, 3), (1, 1, 1)]
)
def test_a_page_of_any_change_fits_a_comment_and_links_to_all_of_it(stacks: int, objects: int, fields: int) -> None:
    def state(stack: int, value: int) -> list[Object]:
        names = [f"object-{stack}-{number}" for number in range(objects)]
        return [made("Thing", name, spec={f"field{n}": f"<{value}>|" * 5 for n in range(fields)}) for name in names]

    text = page([changed(state(n, 1), state(n, 2), f"stack-{n}") for n in range(stacks)], "x")
    assert size(text) <= LIMIT
    for tag in ("code", "pre", "details"):
        assert text.count(f"<{tag}>") == text.count(f"</{tag}>")
    cut = "*Cut: GitHub takes 65,536 characters. The output of `tidegate preview` has all of it.*"
    assert (cut in text) == (stacks * objects * fields > 1)
    assert text.startswith(f"**✏️ {stacks} stack")


def test_a_failed_preview_has_the_whole_reason() -> None:
    lines = [f"{number}: {'long ' * 60}end" for number in range(50)]
    text = failed_page("it", "\n".join(lines))
    assert text.startswith("**⛔ There is no preview**\n")
    assert [unescape(line) for line in text.splitlines() if line.endswith("end")] == lines
    assert "…" not in text
    assert "hunter2" not in failed_page("it", "no https://u:hunter2@host")


@pytest.mark.parametrize("message", ["\n".join("|" * 3_000 for _ in range(500)), "|" * 200_000, "ü" * 200_000])
def test_a_long_page_is_cut_and_its_end_reports_the_failure(message: str) -> None:
    text = failed_page("it", message)
    assert LIMIT // 4 < size(text) <= LIMIT
    assert text.endswith("\n\n**⛔ This preview failed: nothing was compared.**\n")
    assert text.count("<pre>") == text.count("</pre>") == 1


@pytest.mark.parametrize("objects", [1, 3_000])
def test_a_page_with_a_mandatory_finding_ends_with_it_however_short_it_has_to_be(objects: int) -> None:
    found = [Finding("rule", "mandatory", "Service", "ns", f"s{n}", what="x" * 50) for n in range(objects)]
    text = page([changed([made("Service")], [made("Service")], findings=found)], "x")
    assert size(text) <= LIMIT
    plural = "s" if objects > 1 else ""
    assert text.endswith(f"\n\n**⛔ This preview failed: {objects:,} mandatory guardrail finding{plural}.**\n")
