"""The text of config.pbtxt: read and written with Triton's own protobuf, with the line of every field."""

import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from ...errors import UsageError
from ...findings import Finding, error, errors
from .scan import Scan

CONFIG = "config.pbtxt"
_BOM = "\ufeff"
_PLACE = re.compile(r"^\d+:\d+ : ")
_QUOTED_LINE = re.compile(r"^'.*': (?=\S)", re.DOTALL)
_TWO_OF = re.compile(r'Field "(\w+)" is specified along with field "(\w+)"')
_TWICE = re.compile(r'should not have multiple "(\w+)" fields')


@dataclass(frozen=True)
class Lines:
    """Where fields stand."""

    by_path: Mapping[str, int] = field(default_factory=dict)

    def line(self, path: str) -> int:
        """Return the line, from 1, of a field such as `input[0].dims`, else of the nearest that it is within, else 1.

        Elements of lists have numbers from 0, entries of maps their key: `parameters["key"]`.
        """
        while path:
            if path in self.by_path:
                return self.by_path[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return 1


@dataclass(frozen=True)
class ConfigText:
    """A configuration as it was read."""

    config: ModelConfig | None
    """None where the text cannot be parsed."""
    problems: tuple[Finding, ...]
    """All errors: Triton would refuse this text."""
    lines: Lines


def read_config(text: str, file: str = CONFIG) -> ConfigText:
    """Read a text; whatever is wrong with it is among the problems, with its line in `file`."""
    # Triton's parser takes no byte order mark; to go on without it shows what else is wrong.
    bare = text.removeprefix(_BOM)
    seen = Scan(bare, file)
    with suppress(text_format.ParseError):
        seen.fields(ModelConfig.DESCRIPTOR)
    problems = list(seen.strict)
    if bare != text:
        what = "the file begins with a byte order mark, which Triton does not take"
        problems.append(error(what, f"{file}:1", do="save it without"))
    config = ModelConfig()
    try:
        with warnings.catch_warnings(action="ignore"):  # protobuf's own, about escape sequences that are none
            text_format.Parse(bare, config)
    except (text_format.ParseError, ValueError, RecursionError) as failure:
        problems += seen.refused
        problem = _problem(failure, file)
        if not seen.refused and problem.where not in {each.where for each in seen.strict}:
            problems.append(problem)
        config = None
    return ConfigText(config, tuple(dict.fromkeys(problems)), Lines(seen.lines))


def parse_config(text: str, where: str = CONFIG) -> ModelConfig:
    """Return the configuration of a text; raises UsageError about the first thing that Triton would refuse in it."""
    read = read_config(text, where)
    for problem in errors(read.problems):
        raise UsageError(problem.what, where=problem.where, why=problem.why, do=problem.do)
    return read.config


def config_text(config: ModelConfig) -> str:
    """Return the text of a configuration: the same for the same configuration, maps in the order of their keys."""
    return str(text_format.MessageToString(config, as_utf8=True))


def _problem(failure: Exception, file: str) -> Finding:
    """Say in words what protobuf's parser refuses."""
    line = getattr(failure, "GetLine", lambda: None)() or 1
    column = getattr(failure, "GetColumn", lambda: None)() or 1
    where = f"{file}:{line}"
    said = _QUOTED_LINE.sub("", _PLACE.sub("", str(failure)))
    if two := _TWO_OF.search(said):
        why = "a model has one scheduler or policy, not two"
        return error(f"'{two[1]}' and '{two[2]}' exclude each other", where, why, "keep one of them")
    if twice := _TWICE.search(said):
        return error(f"'{twice[1]}' stands twice", where, "it may be given once only", "keep one of them")
    return error(f"column {column}: {said}", where, "the text is not in protobuf's text format")
