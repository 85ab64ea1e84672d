"""The ``gpustrap`` program: its verbs, and the one place where an error becomes an exit code."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated, NoReturn

import typer
import typer.exceptions

from gpustrap import __version__
from gpustrap.cli.options import FIRST_CONTACT, examples
from gpustrap.cli.output import follow_up, refusal, show_problems, stderr
from gpustrap.cli.secrets import take_environment
from gpustrap.cli.verbs import VERBS
from gpustrap.errors import GpustrapError
from gpustrap.exitcodes import ExitCode

app = typer.Typer(
    name="gpustrap",
    help="Turns bare machines into verified GPU nodes and keeps them that way.",
    epilog=examples(
        "gpustrap init my-site --host n1=ADDRESS --user USER",
        "cd my-site",
        FIRST_CONTACT,
        "gpustrap plan",
        "gpustrap apply",
        title="Start:",
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"gpustrap {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Turns bare machines into verified GPU nodes and keeps them that way."""


for _add in VERBS:
    _add(app)


def main() -> NoReturn:
    """Run the program; every way out of it ends here with a documented exit code."""
    os.umask(0o077)  # what a site keeps is the user's alone
    take_environment()
    drop_ansible_settings()
    try:
        result = app(standalone_mode=False)
        code = int(result) if isinstance(result, int) else ExitCode.OK
    except GpustrapError as error:
        show_problems(error.problems)
        code = error.exit_code
    except typer.Exit as done:
        code = done.exit_code
    except (KeyboardInterrupt, typer.Abort):
        stderr.print("\nInterrupted.")
        code = ExitCode.INTERRUPTED
    except typer.exceptions.TyperException as error:
        show_usage_error(error)
        code = ExitCode.USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.OK
    except Exception as error:  # noqa: BLE001 - the last resort: a file for us, one line for the user
        show_internal_error(error)
        code = ExitCode.INTERNAL
    sys.exit(int(code))


def drop_ansible_settings() -> None:
    """Keep the shell's Ansible settings out of our runs, but for the vault's.

    Ansible would follow them (``ANSIBLE_REMOTE_USER``, ``ANSIBLE_PRIVATE_KEY_FILE``, …), our own connections would not:
    one node would be inspected and another changed, or as another user.
    """
    for name in [n for n in os.environ if n.startswith("ANSIBLE_") and not n.startswith("ANSIBLE_VAULT_")]:
        del os.environ[name]


def show_usage_error(error: typer.exceptions.TyperException) -> None:
    """Say what was wrong with the command line, and where its help is."""
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "gpustrap")
    if type(error).__name__ == "NoArgsIsHelpError":  # called without arguments: its message is the help
        return
    stderr.print(refusal(error.format_message()))
    stderr.print(follow_up(f"{path} --help"))


def show_internal_error(error: Exception) -> None:
    """Keep the traceback in a file of the user's own, and say where it is."""
    handle, name = tempfile.mkstemp(prefix="gpustrap-crash-", suffix=".log")
    with Path(name).open("w", encoding="utf-8") as log:
        traceback.print_exception(error, file=log)
    os.close(handle)
    stderr.print(f"gpustrap failed inside: {type(error).__name__}. This is a fault of gpustrap, not yours.")
    stderr.print(f"  Details: {name}")
    stderr.print("  Next: open an issue with that file (look through it first; it holds no passwords).")
