"""The entry point: finds the verb, runs it, and turns every mistake into a message and an exit code."""

import io
import os
import sys
import traceback

import click
from click.shell_completion import shell_complete

from jobtree.api.schema.problems import InputError
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.shell.root_command import COMPLETE_VARIABLE, PROGRAM, root

KUBECTL_ASKS = "__complete"


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    _never_fail_to_print()
    settings = CommandOptions()
    try:
        answer = _run(sys.argv[1:] if argv is None else argv, settings)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return Exit.OK
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except Exception as broken:  # noqa: BLE001  the last resort: a bug, too, has its exit code
        message, code = _explained(broken)
        click.echo(f"{click.style('error:', fg='red')} {message}", err=True, color=settings.color)
        return code
    return int(answer or Exit.OK)


def _run(words: list[str], settings: CommandOptions) -> int | None:
    if words[:1] == [KUBECTL_ASKS]:
        from jobtree.cli.verbs.completion import answer_kubectl

        return answer_kubectl(words[1:])
    if asked := os.environ.get(COMPLETE_VARIABLE):
        return shell_complete(root, {"obj": settings}, PROGRAM, COMPLETE_VARIABLE, asked)
    try:
        with root.make_context(PROGRAM, list(words), obj=settings) as context:
            answer: int | None = root.invoke(context)
            return answer
    except click.exceptions.Exit as leaving:  # --help
        return leaving.exit_code
    except click.exceptions.NoArgsIsHelpError as bare:
        click.echo(bare.format_message())
        return Exit.OK


def _explained(broken: Exception) -> tuple[str, Exit]:
    """What to tell the user, who is at fault for anything but a bug."""
    match broken:
        case CommandError():
            return str(broken), broken.code
        case InputError():
            return str(broken), Exit.USAGE
        case click.ClickException():
            return _usage(broken), Exit.USAGE
    traceback.print_exception(broken)
    return BUG, Exit.BUG


BUG = "this is a bug in Jobtree. Please report it with the lines above and the state file attached."


def _usage(broken: click.ClickException) -> str:
    context = getattr(broken, "ctx", None)
    path = context.command_path if context else PROGRAM
    message = broken.format_message()
    return f"{message[:1].lower()}{message[1:]}\n  '{path} --help' shows how it is used"


def _never_fail_to_print() -> None:
    """A terminal that lacks a sign shows another in its place."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _forget_stdout() -> None:
    """Whoever read the output (head, less) is gone; so the interpreter must not complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
