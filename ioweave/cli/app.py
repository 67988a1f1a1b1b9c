"""The commands. Each reads its arguments, calls one function that makes a report, and gives its text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ioweave.cli import options
from ioweave.cli.answer import DONE, FAILED, INTERRUPTED, Answer
from ioweave.cli.progress import working
from ioweave.diagrams.errors import WeaveError
from ioweave.render.writers.files import check_output, write_whole

if TYPE_CHECKING:
    from ioweave.derive.reporting.subject import Source, Subject
    from ioweave.derive.reporting.target import Target
    from ioweave.hierarchy.report import Report
    from ioweave.hierarchy.verdicts import Direction

MACHINE, LEVELS, ACCUMULATE, OBJECTIVE = "h100", "gmem,smem", "fp32", "transfers"

app = typer.Typer(
    name="ioweave",
    help="Algorithms as neural-circuit diagrams: prove what streams, count every transfer, search the cheapest "
    "schedule, draw it.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from ioweave import __version__

        sys.stdout.write(f"ioweave {__version__}\n")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Algorithms as neural-circuit diagrams: prove what streams, count every transfer, search, draw."""


@app.command()
def derive(
    algorithm: options.Algorithm = None,
    lines: options.Inline = None,
    machine: options.Machine = MACHINE,
    levels: options.Levels = LEVELS,
    capacity: options.Capacity = None,
    objective: options.Objective = OBJECTIVE,
    accumulate: options.Accumulate = ACCUMULATE,
    align: options.Align = None,
    steps: Annotated[bool, typer.Option("--steps", help="Tell the derivation in words.")] = False,
    figure: Annotated[
        str | None, typer.Option("--figure", metavar="FILE", help="Draw before and after, as SVG or PNG.")
    ] = None,
    json: options.Json = False,
    explain: options.Explain = False,
) -> Answer:
    """Find the cheapest schedule of an algorithm, with its cost before and after."""
    from ioweave.derive.reporting.derived import derive_report

    target = _target(machine, levels, capacity, accumulate, objective, align)
    subject = _subject(algorithm, lines, target)
    ending = check_output(figure, ("svg", "png")) if figure is not None else ""
    with working(f"searching schedules of {subject.name}") as tell:
        report = derive_report(subject, target, explain, tell)
    if figure is not None:
        from ioweave.render.drawing import PAIR, draw_report

        write_whole(figure, draw_report(report, PAIR, ending))
    return _print(report, json, steps, INTERRUPTED if _stopped(report) else DONE)


@app.command()
def stream(
    algorithm: options.Algorithm = None,
    axis: Annotated[str, typer.Option("--axis", metavar="AXIS", help="The axis to walk.", show_default=False)] = "",
    lines: options.Inline = None,
    direction: Annotated[
        str | None, typer.Option("--direction", metavar="forward|backward|both", help="The way to walk the axis.")
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option("--certificate", metavar="OUT.JSON", help="Write what --verify checks without the prover."),
    ] = None,
    verify: Annotated[
        str | None, typer.Option("--verify", metavar="OUT.JSON", help="Check a certificate, in place of ALGORITHM.")
    ] = None,
    lazy: Annotated[
        float,
        typer.Option(
            "--lazy", metavar="STEP", help="Move running maxima in multiples of STEP alone, and rescale only then."
        ),
    ] = 0.0,
    approximate: Annotated[
        float | None,
        typer.Option(
            "--approximate",
            metavar="ERROR",
            help="Allow a relative error where no exact plan has one pass, as 1e-6: it is proved.",
            show_default=False,
        ),
    ] = None,
    levels: options.Levels = LEVELS,
    accumulate: options.Accumulate = ACCUMULATE,
    json: options.Json = False,
    explain: options.Explain = False,
) -> Answer:
    """Prove that an axis can be streamed, with the state it needs, or refuse with the reason."""
    from ioweave.derive.reporting.certified import as_asked, parse_direction

    if verify is not None:
        given = (certificate, direction, approximate)
        if algorithm or lines or axis or lazy or any(g is not None for g in given):
            raise WeaveError("--verify reads all it needs from the certificate; give it alone, or with --json")
        return _verified(verify, json)
    if approximate is not None:
        from ioweave.derive.reporting.approximated import parse_error

        parse_error(approximate)
        if certificate is not None or lazy:
            other = "--certificate" if certificate is not None else "--lazy"
            raise WeaveError(f"{other} is of exact plans; give it without --approximate")
    target = _target(MACHINE, levels, None, accumulate)
    asked = None if direction is None else parse_direction(direction)
    subject = _subject(algorithm, lines, target)
    if not axis:
        raise WeaveError(f"say which axis to stream, as --axis {subject.axes[-1][0]}; the axes are {_axes(subject)}")
    if certificate is not None:
        check_output(certificate, ("json",))
    with working(f"proving {axis} of {subject.name}"):
        report, status = _streamed(subject, axis, target, explain, asked, certificate, lazy, approximate)
    answer = _print(report, json, status=status)
    if asked is None or json:
        return answer
    said = "".join(f"{as_asked(v, asked)}\n" for v in report.streaming or ())
    return Answer(f"{answer.text}\n{said}", answer.status)


@app.command()
def cost(
    algorithm: options.Algorithm = None,
    lines: options.Inline = None,
    machine: options.Machine = MACHINE,
    levels: options.Levels = LEVELS,
    capacity: options.Capacity = None,
    accumulate: options.Accumulate = ACCUMULATE,
    json: options.Json = False,
    explain: options.Explain = False,
) -> Answer:
    """Count a levelled diagram as it is written."""
    from ioweave.derive.reporting.cost import cost_report

    target = _target(machine, levels, capacity, accumulate)
    subject = _subject(algorithm, lines, target)
    with working(f"counting {subject.name}"):
        report = cost_report(subject, target, explain)
    return _print(report, json)


@app.command()
def check(
    algorithm: options.Algorithm = None,
    lines: options.Inline = None,
    tile: options.Tile = None,
    seed: Annotated[int, typer.Option("--seed", help="The seed of sizes, tiles and inputs.", min=0)] = 0,
    inputs: Annotated[
        str | None, typer.Option("--inputs", metavar="IN.NPZ", help="Arrays for the inputs, by name.")
    ] = None,
    save: Annotated[
        str | None, typer.Option("--save", metavar="OUT.NPZ", help="Save the inputs and every array stored.")
    ] = None,
    large: Annotated[bool, typer.Option("--large", help="Run at sizes that take long.")] = False,
    machine: options.Machine = MACHINE,
    levels: options.Levels = LEVELS,
    capacity: options.Capacity = None,
    objective: options.Objective = OBJECTIVE,
    accumulate: options.Accumulate = ACCUMULATE,
    json: options.Json = False,
    explain: options.Explain = False,
) -> Answer:
    """Run the derived algorithm in counted memory, against the mathematics and the counts."""
    from ioweave.cli.arrays import read_arrays, save_arrays
    from ioweave.derive.reporting.checked import check_report, sizes_of
    from ioweave.derive.reporting.subject import parse_sizes, settle
    from ioweave.derive.reporting.target import assignments

    target = _target(machine, levels, capacity, accumulate, objective)
    (source,), texts = _sources(algorithm, lines, 1)
    sizes = parse_sizes(texts, [source])
    arrays = None
    if inputs is not None:
        arrays = read_arrays(inputs)
        sizes = sizes_of(source, sizes, arrays)
    tiles = assignments(tile or (), "the tile of", "q=16")
    sized = bool(texts) or arrays is not None
    if save is not None:
        check_output(save, ("npz",))
        if not sized:
            raise WeaveError("--save keeps the arrays of one run; give its sizes, as q=64, or --inputs")
    with working(f"checking {source.name}"):
        subject = settle(source, sizes, target.levels)
        run = check_report(subject, target, sized, tiles, seed, arrays, large, settle(source), explain)
    if save is not None:
        save_arrays(save, run.arrays)
    return _print(run.report, json, status=DONE if run.report.passed else FAILED)


@app.command()
def bound(
    algorithm: options.Algorithm = None,
    lines: options.Inline = None,
    machine: options.Machine = MACHINE,
    levels: options.Levels = LEVELS,
    capacity: options.Capacity = None,
    objective: options.Objective = OBJECTIVE,
    accumulate: options.Accumulate = ACCUMULATE,
    json: options.Json = False,
    explain: options.Explain = False,
) -> Answer:
    """What no schedule can beat, and the closed form of the least transfer."""
    from ioweave.derive.reporting.bounds import bound_report

    target = _target(machine, levels, capacity, accumulate, objective)
    subject = _subject(algorithm, lines, target)
    with working(f"bounding {subject.name}"):
        report = bound_report(subject, target, explain)
    return _print(report, json)


@app.command()
def draw(
    algorithm: options.Algorithm = None,
    lines: options.Inline = None,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where to: .svg or .png (.dot for a graph).", show_default=False
        ),
    ] = "",
    before: Annotated[bool, typer.Option("--before", help="The algorithm as written, a kernel a line.")] = False,
    after: Annotated[bool, typer.Option("--after", help="The schedule found, or as written with levels.")] = False,
    pair: Annotated[bool, typer.Option("--pair", help="Both, side by side (the default).")] = False,
    graph: Annotated[bool, typer.Option("--graph", help="The graph of boxes and regions.")] = False,
    machine: options.Machine = MACHINE,
    levels: options.Levels = LEVELS,
    capacity: options.Capacity = None,
    objective: options.Objective = OBJECTIVE,
    accumulate: options.Accumulate = ACCUMULATE,
) -> Answer:
    """Draw an algorithm before and after, in the notation of the papers."""
    from ioweave.derive.reporting.derived import drawn_report
    from ioweave.render.drawing import ENDINGS, chosen, draw_report

    which = chosen(before, after, pair, graph)
    if not output:
        raise WeaveError("say where to write the figure, as -o figure.svg")
    ending = check_output(output, ENDINGS[which])
    target = _target(machine, levels, capacity, accumulate, objective)
    subject = _subject(algorithm, lines, target)
    with working(f"drawing {subject.name}"):
        data = draw_report(drawn_report(subject, target), which, ending)
    write_whole(output, data)
    return Answer()


@app.command()
def compare(
    things: Annotated[
        list[str] | None,
        typer.Argument(metavar="A B [AXIS=SIZE]...", help="Algorithms, levelled files, machines or dtypes."),
    ] = None,
    lines: Annotated[
        list[str] | None, typer.Option("-e", metavar="LINES", help="The lines of A, or of A and B, given inline.")
    ] = None,
    machine: options.Machine = MACHINE,
    levels: options.Levels = LEVELS,
    capacity: options.Capacity = None,
    objective: options.Objective = OBJECTIVE,
    accumulate: options.Accumulate = ACCUMULATE,
    json: options.Json = False,
    explain: options.Explain = False,
) -> Answer:
    """Say what differs between two algorithms, levelled files, machines or dtypes, term by term."""
    from ioweave.derive.reporting.compared import compare_named, compare_subjects
    from ioweave.derive.reporting.subject import parse_sizes, settle, sizes_for

    target = _target(machine, levels, capacity, accumulate, objective)
    given = list(things or ())
    if not lines and len(given) == 2 and (named := compare_named(given[0], given[1], target)) is not None:
        return _print(named, json)
    sources, texts = _sources(given, list(lines or ()), 2)
    sizes = parse_sizes(texts, sources)
    a, b = (settle(s, sizes_for(s, sizes, sources), target.levels) for s in sources)
    with working(f"comparing {a.name} with {b.name}"):
        report = compare_subjects(a, b, target, explain)
    return _print(report, json)


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(metavar="algorithms|machines", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Print a list of records as JSON.")] = False,
) -> Answer:
    """What comes with ioweave: algorithms by family, or machines."""
    from ioweave.render.report import lists

    if what == "algorithms":
        return Answer(lists.algorithm_records() if json else lists.algorithms())
    if what == "machines":
        return Answer(lists.machine_records() if json else lists.machines())
    raise WeaveError(f"there are lists of algorithms and of machines; write one of them, not {what!r}")


@app.command()
def show(
    algorithm: options.Algorithm = None,
    lines: options.Inline = None,
    form: Annotated[str, typer.Option("--as", metavar="notation|latex|python", help="How to write it.")] = "notation",
    chunk: Annotated[
        str | None,
        typer.Option(
            "--chunk", metavar="AXIS=SIZE", help="Write the scan along AXIS in chunks of SIZE.", show_default=False
        ),
    ] = None,
) -> Answer:
    """Print an algorithm in the notation, as LaTeX, or as Python."""
    from ioweave.render.report.lists import written

    subject = _subject(algorithm, lines, _target(MACHINE, LEVELS, None, ACCUMULATE))
    if chunk is not None:
        from ioweave.derive.reporting.chunks import in_chunks

        subject = in_chunks(subject, chunk)
    return Answer(written(subject, form))


def _streamed(
    subject: Subject,
    axis: str,
    target: Target,
    explain: bool,
    asked: Direction | None,
    certificate: str | None,
    lazy: float,
    error: float | None,
) -> tuple[Report, int]:
    """The report of an axis, its certificate written where one is asked for, and the status."""
    from ioweave.derive.reporting.verdicts import stream_report

    report = stream_report(subject, axis, target, explain, lazy, error)
    if asked is not None:
        from ioweave.derive.reporting.directed import towards

        report = towards(report, subject, target.accumulate, asked)
    if certificate is None:
        return report, DONE
    from ioweave.derive.reporting.certified import certified

    report, made, holds = certified(subject, report, axis, target.accumulate, asked or "both", lazy)
    if made is not None:
        write_whole(certificate, made)
    return report, DONE if holds else FAILED


def _verified(path: str, json: bool) -> Answer:
    """What a check of a certificate found."""
    from ioweave.derive.reporting.certified import verified_report

    with working(f"checking {path}"):
        report, table = verified_report(path)
    status = DONE if report.passed else FAILED
    return _print(report, json, status=status) if json else Answer(table, status)


def _target(
    machine: str,
    levels: str,
    capacity: list[str] | None,
    accumulate: str,
    objective: str = OBJECTIVE,
    align: list[str] | None = None,
) -> Target:
    from ioweave.derive.reporting.target import make_target

    return make_target(machine, levels, capacity or (), accumulate, objective, align or ())


def _sources(names: list[str] | None, lines: str | list[str] | None, wanted: int) -> tuple[list[Source], list[str]]:
    """The texts that were named, and the sizes after them."""
    from ioweave.derive.reporting import subject

    given = list(names or ())
    inline = [lines] if isinstance(lines, str) else list(lines or ())
    count = wanted - len(inline)
    if count < 0:
        raise WeaveError(f"{len(inline)} texts are given inline with -e; give {wanted} in all")
    found, sizes = given[:count], given[count:]
    if len(found) < count or any(_is_size(f) for f in found):
        raise WeaveError(
            "name an algorithm: one of `ioweave list algorithms`, a path, - for standard input, or -e LINES"
        )
    if found.count("-") > 1:
        raise WeaveError("standard input can be read once; give a path for the other")
    return [*(subject.inline(text) for text in inline), *(subject.find(f) for f in found)], sizes


def _is_size(text: str) -> bool:
    return "=" in text and text.partition("=")[0].strip().isidentifier()


def _subject(names: list[str] | None, inline: str | None, target: Target) -> Subject:
    from ioweave.derive.reporting.subject import parse_sizes, settle

    (source,), sizes = _sources(names, inline, 1)
    return settle(source, parse_sizes(sizes, [source]), target.levels)


def _stopped(report: Report) -> bool:
    """Whether a key, and not its own patience, ended the search early."""
    from ioweave.derive.search.derive import PATIENCE

    searched = report.searched
    return searched is not None and searched.interrupted and searched.seconds < PATIENCE


def _axes(subject: Subject) -> str:
    return ", ".join(axis for axis, _ in subject.axes)


def _print(report: Report, json: bool, steps: bool = False, status: int = DONE) -> Answer:
    if json:
        from json import dumps

        return Answer(dumps(report.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n", status)
    from ioweave.render.report import on_screen

    return Answer(on_screen(report, steps=steps), status)
