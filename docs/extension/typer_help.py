"""The directive ``typer-help``: every command of a Typer application, from its own help."""

from __future__ import annotations

import importlib
import re

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.cli import get_docs_for_click


class TyperHelp(SphinxDirective):
    """``{typer-help} module:application name``."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """A section for each command."""
        module, _, attribute = self.arguments[0].partition(":")
        command = typer.main.get_command(getattr(importlib.import_module(module), attribute))
        with command.make_context(self.arguments[1], [], resilient_parsing=True) as context:
            text = get_docs_for_click(obj=command, ctx=context, name=self.arguments[1])
        # The application's own heading is the page's.
        text = re.sub(r"\A# .*\n", "", text)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.add_directive("typer-help", TyperHelp)
    return {"parallel_read_safe": True}
