"""slo.yaml as YAML nodes, which know their places: parsed, joined with what they include."""

from collections.abc import Iterator
from pathlib import Path

import yaml

MOST_BYTES = 1_000_000
_DEEPEST = 5

Loc = tuple[int | str, ...]

# Objectives of an including file take the place of those that agree in these.
_IDENTITY = ("metric", "percentile", "scenario", "meets")
_JOINED = ("load", "validity")


class SloFileError(Exception):
    """A slo.yaml that cannot be used: all mistakes, one a line, as file:line:column: what."""


def read_text(path: Path) -> str:
    """The text of a slo.yaml.

    Raises:
        SloFileError: missing, too long, or no UTF-8.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise SloFileError(f"{path}: is no UTF-8 text") from None
    except OSError as error:
        raise SloFileError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > MOST_BYTES:
        raise SloFileError(f"{path}: has {len(raw)} bytes; allowed: {MOST_BYTES}")
    return text


def root_of(text: str, name: str, allowed: str) -> yaml.MappingNode:
    """The mapping that a document is; its marks bear the file's name.

    Raises:
        SloFileError: no YAML, or no mapping.
    """
    try:
        loader = yaml.SafeLoader(text)
        loader.name = name
        root = loader.get_single_node()
        if isinstance(root, yaml.MappingNode):
            value_of(root)  # tags that are none are found out here
            return root
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SloFileError(f"{name}:{yaml_mistake(error)}") from None
    raise SloFileError(f"{name}:1:1: the document is no mapping; allowed keys: {allowed}")


def value_of(node: yaml.Node) -> object:
    """What a node means."""
    return yaml.SafeLoader("").construct_document(node)


def with_includes(root: yaml.MappingNode, name: str, allowed: str) -> yaml.MappingNode:
    """The document joined with the one that it includes, and that with its own.

    Raises:
        SloFileError: a file that cannot be read, or a circle; names the place that includes it.
    """
    return _joined_with_base(root, (name,), allowed)


def _joined_with_base(
    root: yaml.MappingNode, names: tuple[str, ...], allowed: str
) -> yaml.MappingNode:
    include = child(root, "include")
    if not isinstance(include, yaml.ScalarNode):
        return root
    mark = include.start_mark
    at = f"{names[-1]}:{mark.line + 1}:{mark.column + 1}: include"
    path = str(Path(names[-1]).parent / include.value)
    if path in names or len(names) > _DEEPEST:
        raise SloFileError(f"{at}: {include.value!r} includes this file again, or too deep")
    try:
        base = root_of(read_text(Path(path)), path, allowed)
    except SloFileError as error:
        raise SloFileError(f"{at}: {error}") from None
    mistakes = list(duplicates(base))
    if mistakes:
        mark, loc, what = mistakes[0]
        raise SloFileError(f"{path}:{mark.line + 1}:{mark.column + 1}: {loc[-1]}: {what}")
    return _joined(_joined_with_base(base, (*names, path), allowed), root)


def _joined(base: yaml.MappingNode, over: yaml.MappingNode) -> yaml.MappingNode:
    """Keys of `over` replace those of `base`; load and validity are joined, objectives by what
    they are about.
    """
    pairs = {key.value: (key, value) for key, value in base.value}
    for key, value in over.value:
        below = pairs[key.value][1] if key.value in pairs else None
        joined = value
        if isinstance(below, yaml.MappingNode) and isinstance(value, yaml.MappingNode):
            joined = _joined(below, value) if key.value in _JOINED else value
        elif isinstance(below, yaml.SequenceNode) and isinstance(value, yaml.SequenceNode):
            joined = _objectives(below, value)
        pairs[key.value] = (key, joined)
    return yaml.MappingNode(over.tag, list(pairs.values()), over.start_mark, over.end_mark)


def _objectives(base: yaml.SequenceNode, over: yaml.SequenceNode) -> yaml.SequenceNode:
    nodes = {identity(node): node for node in base.value}
    return yaml.SequenceNode(
        over.tag,
        list((nodes | {identity(node): node for node in over.value}).values()),
        over.start_mark,
        over.end_mark,
    )


def identity(node: yaml.Node) -> tuple[str, ...]:
    """What an objective is about: two that agree in this are the same one."""
    if not isinstance(node, yaml.MappingNode):
        return (str(id(node)),)
    said = {key.value: str(value_of(value)) for key, value in node.value}
    relative = "change" if "max_change" in said else ""
    bound = "min" if "min" in said else "max"
    return (*(said.get(name, "") for name in _IDENTITY), relative, bound)


def child(node: yaml.Node, key: str) -> yaml.Node | None:
    """The value of a key."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def yaml_mistake(error: Exception) -> str:
    """Where a text is no YAML, and why: line:column: what."""
    if isinstance(error, RecursionError):
        return "1:1: cannot be read as YAML: it is nested too deep"
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or (str(error) or "empty").splitlines()[0]
    place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
    return f"{place}: cannot be read as YAML: {what}"


def duplicates(root: yaml.Node) -> Iterator[tuple[yaml.Mark, Loc, str]]:
    """Keys that stand twice in one mapping: YAML would silently take the last."""
    waiting: list[tuple[yaml.Node, Loc]] = [(root, ())]
    seen: set[int] = set()  # an anchor may be used many times
    while waiting:
        node, loc = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(item, (*loc, i)) for i, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            first: dict[str, int] = {}
            for key, value in node.value:
                if key.value in first:
                    what = f"stands twice; first in line {first[key.value]}"
                    yield key.start_mark, (*loc, key.value), what
                elif isinstance(key, yaml.ScalarNode):
                    first[key.value] = key.start_mark.line + 1
                waiting.append((value, (*loc, str(key.value))))


def place(root: yaml.Node, loc: Loc, *, of_key: bool = False) -> yaml.Mark:
    """Where a key's value starts (or the key itself); of what is missing, where it is missing."""
    node, mark = root, root.start_mark
    for part in loc:
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            mark = node.start_mark
            continue
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        found = [(key, value) for key, value in pairs if key.value == str(part)]
        if not found:
            break
        key, node = found[-1]
        mark = key.start_mark if of_key else node.start_mark
    return mark
