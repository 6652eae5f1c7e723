"""``hetccl plan``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from hetccl import _lib, files
from hetccl.arguments import Datatype, parse_call, parse_count, parse_op
from hetccl.topology.command import files_are_arguments, read_or_make
from hetccl.topology.options import (
    Cards,
    Hosts,
    Kind,
    LayoutText,
    Nic,
    Together,
    TopologyFile,
    topology_of,
)

Collective = Annotated[
    str, typer.Argument(help="all_reduce, broadcast, ...; send_recv: a message.")
]
# Larger numbers would not fit the C API's types; the library says what fits the topology.
_INT, _SIZE = 2**31 - 1, 2**63
_PREMUL = 5  # hetcclNumOps: any operator of hetcclRedOpCreatePreMulSum


def _up_to(largest: int) -> Callable[[int | None], int | None]:
    """Checks a number, as `max=` would, which shows 20 digits in the help."""

    def check(value: int | None) -> int | None:
        if value is not None and not 0 <= value <= largest:
            raise typer.BadParameter(f"{value} is not in the range from 0 to {largest}")
        return value

    return check


Count = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=parse_count,
        callback=_up_to(_SIZE),
        help="Elements, as the collective counts them: 1000, 64K, 1M.",
    ),
]


def _operator(given: str) -> str:
    return parse_op(given, more=["band", "bor", "bxor", "premul_sum"])


Op = Annotated[
    str,
    typer.Option("-o", "--op", parser=_operator, metavar="OP", help="sum, avg, premul_sum, ..."),
]
Root = Annotated[
    int, typer.Option(metavar="R", callback=_up_to(_INT), help="Where the collective has one.")
]
To = Annotated[
    int,
    typer.Option(metavar="R", callback=_up_to(_INT), help="send_recv: from --root to this rank."),
]
RankOption = Annotated[
    int | None,
    typer.Option(
        "--rank", metavar="R", callback=_up_to(_INT), help="List this rank's steps alone."
    ),
]
SliceBytes = Annotated[
    int,
    typer.Option(
        "--slice-bytes",
        metavar="N",
        callback=_up_to(_SIZE),
        help="As HETCCL_SLICE_BYTES; 0: as hetccl chooses.",
    ),
]
Depth = Annotated[
    int,
    typer.Option(metavar="N", callback=_up_to(_INT), help="As HETCCL_DEPTH; 0: as hetccl chooses."),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="Show the plans it was chosen from, their costs, and what each card carries.",
    ),
]
ShowCode = Annotated[
    bool, typer.Option("--code", help="List the instructions that run, not only the plan's steps.")
]
Mutants = Annotated[
    int,
    typer.Option(
        metavar="N",
        callback=_up_to(100_000),
        help="Make N programs with one mistake and count those that the verifier rejects.",
    ),
]
Seed = Annotated[
    int, typer.Option(metavar="N", callback=_up_to(_SIZE), help="Chooses the mutants.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, not the tables.")]
Svg = Annotated[Path | None, typer.Option("--svg", help="Write the picture here.")]


def plan(
    collective: Collective,
    topology: TopologyFile = None,
    layout: LayoutText = None,
    hosts: Hosts = None,
    kind: Kind = None,
    nic: Nic = None,
    nics: Cards = None,
    together: Together = False,
    count: Count = 1 << 20,
    dtype: Datatype = "float32",
    op: Op = "sum",
    root: Root = 0,
    to: To = 1,
    rank: RankOption = None,
    slice_bytes: SliceBytes = 0,
    depth: Depth = 0,
    explain: Explain = False,
    code: ShowCode = False,
    mutants: Mutants = 0,
    seed: Seed = 0,
    as_json: AsJson = False,
    svg: Svg = None,
) -> None:
    """Show what a collective would do on a topology: steps, bytes, whether it is proven correct.

    Status 1 where the verifier finds the plan wrong.
    """
    from hetccl.bench.operations import CASES
    from hetccl.plan import description
    from hetccl.plan import svg as pictures
    from hetccl.plan import text as tables
    from hetccl.topology import graph

    complete = read_or_make(topology, topology_of(layout, hosts, kind, nic, nics, together))
    operator = _PREMUL if op == "premul_sum" else _lib.RedOp[op]
    answer = _lib.plan(
        complete, parse_call(collective, [*CASES, "barrier"]), count=count,
        dtype=_lib.DataType[dtype],
        op=operator, root=root, to=to, rank=rank, slice_bytes=slice_bytes, depth=depth,
        code=code, mutants=mutants, seed=seed,
    )  # fmt: skip
    described = description.parse(answer)
    if svg is not None:
        try:
            picture = pictures.draw(described)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        with files_are_arguments():
            files.write_text(svg, picture)
    if as_json:
        print(answer)
    else:
        tables.show(described, graph.parse(complete), explain=explain)
    if not described.correct:
        raise typer.Exit(1)
