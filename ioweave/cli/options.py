"""Arguments and options that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

Algorithm = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ALGORITHM [AXIS=SIZE]...",
        help="A name of the catalogue, a path, - for standard input; sizes as q=4096 or q=128Ki.",
        show_default=False,
    ),
]
Inline = Annotated[
    str | None, typer.Option("-e", metavar="LINES", help="The lines given inline, in place of ALGORITHM.")
]
Machine = Annotated[str, typer.Option("--machine", help="A shipped machine, or the path of a .toml file.")]
Levels = Annotated[str, typer.Option("--levels", help="The two levels counted, the larger first.")]
Capacity = Annotated[
    list[str] | None,
    typer.Option("--capacity", metavar="LEVEL=AMOUNT", help="Another capacity, as smem=128KiB.", show_default=False),
]
Accumulate = Annotated[
    str, typer.Option("--accumulate", metavar="fp32|same", help="fp32 as kernels do, or same as papers count.")
]
Objective = Annotated[str, typer.Option("--objective", metavar="transfers[:LEVEL]", help="What is made least.")]
Align = Annotated[
    list[str] | None,
    typer.Option("--align", metavar="AXIS=N", help="Tiles of an axis are multiples of N.", show_default=False),
]
Tile = Annotated[
    list[str] | None,
    typer.Option("--tile", metavar="AXIS=N", help="Another tile for an axis, as q=16.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Explain = Annotated[bool, typer.Option("--explain", help="Print the terms, rule and line of every total.")]
