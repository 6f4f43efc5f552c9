"""The check of language in pages, messages, docstrings and comments: `python -m tests.docs.language <path> …`.

CONTRIBUTING.md has the rules. This module finds what a program can find.
"""

import ast
import inspect
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

MOST_WORDS = 25  # in a sentence, and in a cell of a table
WORDS = {
    r"told|tells?|telling": "report, return, show, log",
    r"said|says?|saying": "set, state, report, print",
    r"ask|asks|asked|asking": "request, query, check",
    r"(?:no|some|every|any)body": "no one, a user, all callers, or the actor's name",
    r"anew": "again",
    r"beside": "next to, in addition to",
    r"mend(?:s|ed|ing)?": "fix",
    r"dear": "expensive",
    r"but for": "except",
    r"of (?:its|their|your|one's|his|her|our) own": "own, separate",
    r"he|him|his|she|her": "they, the caller",
    r"believe[sd]?": "trust",
}
_WORDS = re.compile(rf"\b(?:{'|'.join(f'({words})' for words in WORDS)})\b", re.IGNORECASE)
_NOUN_CLAUSE = re.compile(r"(?:What|Who|Whoever|Where)\b(?!.*\?)")
_SENTENCE_END = re.compile(r"(?<=[.!?…·])[\"')*_]*\s+(?=[\"'(*_`]*[A-Z0-9])|\n\s*\n|\n\s*(?=[-*•|] |\d+\. )")
_CODE = re.compile(
    r"\[default: .*?\]|``.+?``|`[^`]+`|https?://\S+|--[\w-]+|\{[^{}]*\}|\b\w+(?:[._/]\w+)+\b|\b\w*[a-z][A-Z]\w*\b"
)
_PROGRAM = re.compile(
    r"-src '?|\bby \(|; do |&& |\\[bwds]|\(\?|^import |\[\d+m\]", re.MULTILINE
)  # PromQL, shell, Python
_PROSE = re.compile(r"[A-Za-z]+(?:'[a-z]+)?[,;:]? [a-zX]+[,;:]? [a-zX]+")  # What has fewer words is a key or a name.


class Text(NamedTuple):
    """Some prose, and where it begins."""

    line: int
    text: str
    kind: str  # page, heading, cell, docstring, message, comment, name of a test


def findings(text: Text) -> Iterator[str]:
    """Yield each rule that the prose breaks, with the words that break it."""
    prose = _CODE.sub("X", text.text.removeprefix("[!NOTE] ").removeprefix("[!WARNING] "))
    for found in _WORDS.finditer(prose):
        yield f'"{found[0]}": {list(WORDS.values())[(found.lastindex or 1) - 1]}'
    if ";" in re.sub(r"&\w+;", "", prose):
        yield "a semicolon: write two sentences"
    if text.kind == "heading":
        return
    if text.kind == "cell" and (count := len(prose.split())) > MOST_WORDS:
        yield f"a cell of {count} words"
        return
    for sentence in _SENTENCE_END.split(prose):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        if len(words) > MOST_WORDS:
            yield f"a sentence of {len(words)} words: {' '.join(words[:6])} …"
        if _NOUN_CLAUSE.match(sentence.lstrip("*_ ")) and len(words) > 3:
            yield f"begins with a noun clause: {' '.join(words[:6])} …"


def texts(path: Path) -> Iterator[Text]:
    """Yield the prose of a file."""
    source = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".md":
            yield from _page(source)
        case ".py":
            yield from _code(source)
        case ".json" if "dashboards" in path.parts:
            yield from (Text(1, text, "message") for text in _strings(json.loads(source)) if _is_prose(text))
        case ".yaml" if path.name == "alert_rules.yaml":
            yield from (Text(1, text, "message") for text in _strings(yaml.safe_load(source)) if _is_prose(text))
        case ".go" | ".mod":
            yield from _comments(enumerate(re.sub("//(?! indirect)", "#", source).splitlines(), 1))
        case _:
            yield from _comments(enumerate(source.splitlines(), 1))


def _page(source: str) -> Iterator[Text]:
    tokens = MarkdownIt("commonmark").enable("table").parse(source)
    for before, token in pairwise(tokens):
        if token.type == "inline" and token.map:
            kind = {"heading_open": "heading", "td_open": "cell", "th_open": "cell"}.get(before.type, "page")
            yield Text(token.map[0] + 1, "".join(_plain(token.children or [])), kind)


def _plain(tokens: list[Token]) -> Iterator[str]:
    """Yield the words of a paragraph. Code counts as one word, and so do cited words in italics."""
    cited = False
    for token in tokens:
        match token.type:
            case "em_open" | "em_close":
                cited = token.type == "em_open"
            case "text":
                yield "X" if cited else token.content
            case "code_inline":
                yield "`X`"
            case "softbreak" | "hardbreak":
                yield " "


def _code(source: str) -> Iterator[Text]:
    nodes = [*ast.walk(ast.parse(source))]
    docstrings = set()
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstrings |= {id(each.value) for each in node.body if isinstance(each, ast.Expr)}
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Text(node.lineno, node.name[5:].replace("_", " ").capitalize(), "name")
    for node, parts in _literals(nodes):
        text = "".join(parts)
        if id(node) in docstrings:
            text = re.sub(r"^ {4}.*\n", "", inspect.cleandoc(text), flags=re.MULTILINE)  # without indented code
            yield Text(node.lineno, text, "docstring")
        elif _is_prose(text):
            yield Text(node.lineno, text, "message")
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from _comments((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)


def _literals(nodes: list[ast.AST]) -> Iterator[tuple[ast.expr, list[str]]]:
    within: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            within |= {id(value) for value in node.values}
            yield node, [str(each.value) if isinstance(each, ast.Constant) else "X" for each in node.values]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within:
            yield node, [node.value]


def _comments(lines: Iterator[tuple[int, str]]) -> Iterator[Text]:
    """Yield the comments. Those on consecutive lines are one."""
    found = [(line, text.split("#", 1)[1].strip()) for line, text in lines if re.search(r"(?:^|\s)#(?:\s|$)", text)]
    for _, block in groupby(enumerate(found), lambda each: each[1][0] - each[0]):
        rows = [row for _, row in block]
        yield Text(rows[0][0], " ".join(text for _, text in rows), "comment")


def _is_prose(text: str) -> bool:
    return _PROSE.search(text) is not None and _PROGRAM.search(text) is None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


TESTS = Path(__file__).resolve().parents[1]
SUFFIXES = {".md", ".py", ".yaml", ".json", ".tpl", ".go", ".mod", ".toml", ""}  # Makefile and .ci/run have none.


def main(roots: list[str]) -> int:
    """Print the findings below some paths, and return their number. Texts in tests are data, not messages."""
    count = 0
    for root in map(Path, roots):
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.suffix in SUFFIXES and path.is_file():
                for text in texts(path):
                    if text.kind == "message" and path.resolve().is_relative_to(TESTS):
                        continue
                    for finding in findings(text):
                        print(f"{path}:{text.line}: {text.kind}: {finding}")
                        count += 1
    print(f"{count} findings")
    return count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
