"""Sphinx's settings: `make docs` builds the site into build/docs, and every warning fails it."""

import sys
from pathlib import Path

import hetccl

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extension"))

project = "hetccl"
author = "the hetccl authors"
release = version = hetccl.__version__
project_copyright = author

extensions = [
    "myst_parser",  # pages are Markdown
    "sphinx.ext.autodoc",
    "c_header",
    "typer_help",
]
root_doc = "index"
exclude_patterns = ["extension"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

smartquotes = False  # "--option" stays what it is
default_role = "code"  # docstrings write `names` as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
nitpicky = True
nitpick_ignore = [
    *(("c:identifier", name) for name in ("size_t", "int64_t", "uint32_t", "uint64_t")),
    *(  # structs of which only pointers are known
        ("c:identifier", f"hetccl{name}")
        for name in (
            "BlockList",
            "Comm",
            "Endpoint",
            "Transfer",
            *(f"Runtime{kind}" for kind in ("Event", "Graph", "GraphNode", "GraphExec")),
        )
    ),
    ("py:class", "types.TracebackType"),
]

html_theme = "furo"
html_title = f"hetccl {release}"
html_show_copyright = False
html_static_path: list[str] = []
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2f6fde", "color-brand-content": "#2f6fde"},
    "dark_css_variables": {"color-brand-primary": "#6ea3ff", "color-brand-content": "#6ea3ff"},
}
