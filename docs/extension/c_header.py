"""The directive ``c-header``: declarations of C headers and their doc comments, as Sphinx's own.

cxxheaderparser reads the header; Sphinx's C domain checks the declarations and links them. Doc
comments are Markdown. A public name without one is a warning, which fails the build.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cxxheaderparser.simple import ParsedData, parse_string
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

_LOG = logging.getLogger(__name__)
# Functions go under the first heading whose pattern their name has.
_HEADINGS = (
    ("Calls as values", r"^hetccl(Start|Work)|^hetcclCommWait$"),
    ("Streams of the host device", r"^hetcclHostStream"),
    ("Describing without running", r"Describe$|^hetcclGetInfo$|^hetcclCompareTimes$"),
    ("Memory", r"^hetcclMem|^hetcclComm(Dereg|Reg)ister$"),
    ("Communicators", r"^hetcclComm|^hetcclGetUniqueId"),
    ("Results, errors, version", r"^hetcclGet"),
    ("Runtimes", r"^hetcclRuntime"),
    ("Operators", r"^hetcclRedOp"),
    ("Encodings", r"^hetccl(En|De)code"),
    ("Collectives", r""),
)
_DIRECTIVE = re.compile(r"^#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)  # of the preprocessor
_TYPEDEF = re.compile(
    r"/\*\*((?:(?!\*/).)*)\*/\s*typedef [^{};]*?(\w+)(?:\)\([^()]*\))?;", re.DOTALL
)  # the last is of a pointer to a function


class Header:
    """Parsed headers, one after the other, and the text of their comments."""

    def __init__(self, *paths: Path) -> None:
        text = "".join(path.read_text(encoding="utf-8") for path in paths)
        text = _DIRECTIVE.sub("", text)
        text = re.sub(r"\b[A-Z]+_API\b", "", text)
        self.undocumented: list[str] = []  # names that lack a comment, once drawn
        self.data: ParsedData = parse_string(text)
        self.typedef_docs = {name: doc for doc, name in _TYPEDEF.findall(text)}
        space = self.data.namespace
        self.functions = {str(f.name.format()) for f in space.functions}
        self.types = {typedef.name for typedef in space.typedefs}
        self.values = {value.name for enum in space.enums for value in enum.values}

    def doc(self, comment: str | None, name: str, needed: bool = True) -> str:
        """A comment's text as Markdown, with names of the API as links."""
        if not comment:
            if needed:
                self.undocumented.append(name)
            return ""
        inside = re.sub(r"^/\*\*<?|\*/$", "", comment.strip())
        lines = (re.sub(r"^\s*\*? ?", "", line) for line in inside.strip().splitlines())
        text = re.sub(r"([*<>\[\]])", r"\\\1", " ".join(lines).strip())
        return re.sub(r"(?<![`\w])hetccl\w+", self._link, text)

    def _link(self, match: re.Match[str]) -> str:
        name = match[0]
        for names, role in (
            (self.functions, "c:func"), (self.types, "c:type"), (self.values, "c:enumerator"),
        ):  # fmt: skip
            if name in names:
                return f"{{{role}}}`{name}`"
        return name

    def function(self, function: Any) -> str:
        """One function."""
        arguments = ", ".join(_declare(p.type.format(), p.name) for p in function.parameters)
        name = function.name.format()
        result = function.return_type.format()
        return _directive(
            "function", _declare(result, f"{name}({arguments or 'void'})"),
            self.doc(function.doxygen, name),
        )  # fmt: skip

    def type(self, typedef: Any) -> str:
        """A typedef: of an enum with its values, of a struct with its members, of another type."""
        kind, name = typedef.type.format(), typedef.name
        for enum in self.data.namespace.enums:
            if enum.typename.format() == kind:
                values = [
                    _directive("enumerator", f"{value.name} = {value.value.format()}",
                               self.doc(value.doxygen, value.name, needed=False), depth=3)
                    for value in enum.values
                ]  # fmt: skip
                return _directive("enum", name, self.doc(enum.doxygen, name), *values)
        for scope in self.data.namespace.classes:
            if scope.class_decl.typename.format() == kind:
                members = [
                    _directive("member", _declare(field.type.format(), field.name),
                               self.doc(field.doxygen, field.name, needed=False), depth=3)
                    for field in scope.fields
                ]  # fmt: skip
                return _directive(
                    "struct", name, self.doc(scope.class_decl.doxygen, name), *members
                )
        doc = self.doc(self.typedef_docs.get(name), name)
        return _directive("type", _declare(kind, name), doc)

    def markdown(self) -> Iterator[str]:
        """The whole page."""
        left = list(self.data.namespace.functions)
        sections = []
        for title, pattern in _HEADINGS:
            here = [f for f in left if re.search(pattern, f.name.format())]
            left = [f for f in left if f not in here]
            sections.append((title, [self.function(f) for f in here]))
        sections.reverse()
        sections.append(("Types", [self.type(t) for t in self.data.namespace.typedefs]))
        for title, parts in sections:
            if not parts:
                continue
            yield f"## {title}\n"
            yield from parts


def _declare(kind: str, name: str) -> str:
    """Returns a declaration: "const char *text", "char internal[128]", "void (*hook)(void *)"."""
    if "(*)" in kind:
        return kind.replace("(*)", f"(*{name})")
    array = re.fullmatch(r"(.*)(\[\d+\])", kind)
    if array:
        return f"{array[1]} {name}{array[2]}"
    return re.sub(r"\s*(\**)$", r" \1", kind, count=1) + name


def _directive(kind: str, signature: str, *parts: str, depth: int = 4) -> str:
    fence = ":" * depth
    body = "\n\n".join(part for part in parts if part)
    return f"{fence}{{c:{kind}}} {signature}\n{body}\n{fence}\n"


class CHeader(SphinxDirective):
    """``{c-header} path ...``, relative to the page: headers of one API."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The headers' page."""
        paths = [self.env.relfn2path(name)[1] for name in self.arguments[0].split()]
        for path in paths:
            self.env.note_dependency(path)
        header = Header(*map(Path, paths))
        text = "\n".join(header.markdown())
        for name in header.undocumented:
            _LOG.warning("%s has no doc comment", name, location=paths[-1])
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.add_directive("c-header", CHeader)
    return {"parallel_read_safe": True}
