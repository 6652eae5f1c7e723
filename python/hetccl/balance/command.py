"""``hetccl balance``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hetccl.balance.planner import Plan, plan
from hetccl.balance.profiles import BalanceError

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="A plan that Plan.save of hetccl.balance has written."),
]
Batch = Annotated[
    int | None, typer.Option("--batch", min=1, help="Samples of all ranks. Else the plan's.")
]
Accumulation = Annotated[
    int | None,
    typer.Option("--accumulation", min=1, help="Micro-batches of a rank. Else the fastest number."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, not the table.")]


def balance(
    file: File, batch: Batch = None, accumulation: Accumulation = None, as_json: AsJson = False
) -> None:
    """Explain the shares of a balanced job, or divide another batch by its profiles."""
    from hetccl.balance import text

    try:
        found = Plan.load(file)
        if batch is not None or accumulation is not None:
            found = plan(found.profiles, batch or found.batch, accumulation)
    except BalanceError as error:
        raise typer.BadParameter(str(error)) from None
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}") from None
    if as_json:
        print(json.dumps(text.to_values(found)))
    else:
        text.show(found)
