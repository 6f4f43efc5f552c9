"""Comments of the components' source, for the templates: a reader should find the why there too."""

import ast
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Comments:
    """The comments of source files, by what stands below them."""

    files: Iterable[Path]
    keys: list[tuple[str, frozenset[str], str]] = field(default_factory=list)
    """Key of a mapping, the keys that may stand beside it, comment."""
    texts: dict[str, str] = field(default_factory=dict)
    """Item of a list → comment."""
    lines: dict[tuple[str, int], str] = field(default_factory=dict)
    """File and line of a statement → comment."""

    def __post_init__(self) -> None:
        for path in sorted(self.files):
            self._read(path)

    def of_key(self, key: str, beside: Iterable[str]) -> str | None:
        """Return the comment of a key of a mapping with these keys; a helper may have added some of them."""
        wanted, others = _normal(key), frozenset(map(_normal, beside))
        return next(
            (text for name, known, text in self.keys if name == wanted and (others <= known or known <= others)), None
        )

    def _read(self, path: Path) -> None:
        source = path.read_text("utf-8")
        above, lines = _comments(source), source.splitlines()
        for line, text in above.items():
            self.lines[str(path), line] = text
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call):
                self._add({keyword.arg: _own_line(keyword, lines) for keyword in node.keywords if keyword.arg}, above)
            elif isinstance(node, ast.Dict):
                constant = [key for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
                self._add({str(key.value): _own_line(key, lines) for key in constant}, above)
            elif isinstance(node, ast.List):
                for item in node.elts:
                    if isinstance(item, ast.Constant) and isinstance(item.value, str) and item.lineno in above:
                        self.texts[item.value] = above[item.lineno]

    def _add(self, starts: dict[str, int], above: dict[int, str]) -> None:
        known = frozenset(map(_normal, starts))
        self.keys += [(_normal(name), known, above[line]) for name, line in starts.items() if line in above]


def _own_line(node: ast.keyword | ast.expr, lines: list[str]) -> int:
    """Return the line that a part of the source begins; 0 when something else stands before it on its line."""
    return 0 if lines[node.lineno - 1][: node.col_offset].strip() else node.lineno


def _normal(name: str) -> str:
    """Return a name as it is alike in Python and in Kubernetes: `from_` and `from`, `cluster_ip` and `clusterIP`."""
    return name.replace("_", "").lower()


def _comments(source: str) -> dict[int, str]:
    """Return the comments that have lines of their own, by the line below them."""
    found: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            line = token.start[0]
            text = token.string.lstrip("# ")
            found[line + 1] = f"{found.pop(line)} {text}" if line in found else text
    return found
