"""Pages that need nothing else, in HTML: a command's template extends base.html."""

from __future__ import annotations

import time

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(command: str, template: str, **values: object) -> str:
    """The page of a command, from a template of this package, as "check/page.html". Every value is
    escaped, but `markupsafe.Markup`."""
    environment = Environment(
        loader=PackageLoader("hetccl", "."), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    written = f"Written by hetccl {command} on {time.strftime('%Y-%m-%d at %H:%M')}."
    return environment.get_template(template).render(command=command, footer=written, **values)
