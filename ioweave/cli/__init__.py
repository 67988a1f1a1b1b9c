"""The command line: parse, call, print. What is heavy is imported by the command that needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ioweave.cli.answer import BAD_INPUT, BROKEN, DONE, FAILED, INTERRUPTED, PIPE, Answer


def main() -> None:
    """Run the command line and leave with its status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command.

    Returns 0 done, 1 the check failed or nothing fits, 2 bad input (one line on standard error),
    70 an error of ioweave's own, 130 interrupted, 141 the reader of the output went away.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        answer = _answer(arguments)
        sys.stdout.write(answer.text)
        sys.stdout.flush()
        return answer.status
    except BrokenPipeError:
        # what is left in the buffer would raise again as the interpreter ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except Exception as error:
        return _status_of(error)


def _answer(arguments: Sequence[str]) -> Answer:
    from ioweave.cli.app import app

    # without a word the help is the answer
    result = app(list(arguments) or ["--help"], prog_name="ioweave", standalone_mode=False)
    if isinstance(result, Answer):
        return result
    return Answer("", result if isinstance(result, int) else DONE)


def _status_of(error: Exception) -> int:
    """Tell what went wrong on one line."""
    import typer

    from ioweave.diagrams.errors import DoesNotFit, Refused, WeaveError

    if isinstance(error, typer.Abort):
        return _say("interrupted", INTERRUPTED)
    if isinstance(error, DoesNotFit):
        return _say(str(error), FAILED)
    if isinstance(error, WeaveError | Refused):
        return _say(str(error), BAD_INPUT)
    usage = getattr(error, "format_message", None)  # a usage error of the parser of arguments
    if callable(usage):
        return _say(f"{usage().rstrip('.')}; `{_help(error)} --help` tells the usage", BAD_INPUT)
    if isinstance(error, OSError):
        return _say(f"cannot write the output: {(error.strerror or str(error)).lower()}", BAD_INPUT)
    if os.environ.get("IOWEAVE_DEBUG"):
        raise error
    kind = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return _say(f"an error of ioweave's own, please report it ({kind}); IOWEAVE_DEBUG=1 shows where", BROKEN)


def _help(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return str(getattr(context, "command_path", "ioweave"))


def _say(text: str, status: int) -> int:
    print("ioweave: " + " ".join(text.split()), file=sys.stderr)
    return status
