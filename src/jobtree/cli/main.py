"""The entry point: runs a verb and turns errors into messages and exit codes."""

import io
import os
import sys
import traceback

import click
from click.shell_completion import shell_complete

from jobtree.api.schema.problems import JobtreeError
from jobtree.cli.shell.command_errors import Exit
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.root_command import COMPLETE_VARIABLE, PROGRAM, root

KUBECTL_COMPLETION = "__complete"


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    _replace_unprintable_characters()
    settings = CommandOptions()
    try:
        code = _run(sys.argv[1:] if argv is None else argv, settings)
        sys.stdout.flush()
    except BrokenPipeError:
        _redirect_stdout_to_null()
        return Exit.OK
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001  the last resort: a bug has an exit code of its own
        message, code = _message_and_code(error)
        click.echo(f"{click.style('error:', fg='red')} {message}", err=True, color=settings.color)
        return code
    return int(code or Exit.OK)


def _run(words: list[str], settings: CommandOptions) -> int | None:
    if words[:1] == [KUBECTL_COMPLETION]:
        from jobtree.cli.verbs.completion import answer_kubectl

        return answer_kubectl(words[1:])
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        return shell_complete(root, {"obj": settings}, PROGRAM, COMPLETE_VARIABLE, instruction)
    try:
        with root.make_context(PROGRAM, list(words), obj=settings) as context:
            code: int | None = root.invoke(context)
            return code
    except click.exceptions.Exit as exit_request:  # --help
        return exit_request.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return Exit.OK


def _message_and_code(error: Exception) -> tuple[str, Exit]:
    """Returns the message and exit code of an error; any error of an unexpected type is a bug."""
    match error:
        case JobtreeError():
            return str(error), Exit(error.exit_code)
        case click.ClickException():
            return _usage_message(error), Exit.USAGE
    traceback.print_exception(error)
    return BUG, Exit.BUG


BUG = "this is a bug in Jobtree: please report it with the lines above and, if there is one, the state file"


def _usage_message(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else PROGRAM
    message = error.format_message()
    return f"{message[:1].lower()}{message[1:]}\n  '{path} --help' shows how to use it"


def _replace_unprintable_characters() -> None:
    """Makes the output replace characters that its encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _redirect_stdout_to_null() -> None:
    """Keeps the interpreter from reporting an error at exit after the reader (head, less) has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
