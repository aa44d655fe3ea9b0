"""The command's root: finds subcommands when they are called, and turns errors into one line.

Subcommands are imported on demand, because ``preview`` needs no Kafka client and
a client takes longer to import than most commands run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from cli.errors import Misuse, explain
from cli.output import say
from cronstream import __version__

_COMMANDS = {
    "setup": "cli.setup:setup",
    "status": "cli.status:status",
    "doctor": "cli.doctor:doctor",
    "jobs": "cli.jobs:jobs",
    "runs": "cli.runs:runs",
    "requests": "cli.requests:requests",
    "history": "cli.history:history",
    "dead-letters": "cli.dead_letters:letters",
    "preview": "cli.preview:preview",
    "adopt-etcd": "cli.adopt:adopt_etcd",
}


class Commands(click.Group):
    """The root group."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            failure = explain(error)
            if failure is None:
                raise
            raise failure from error

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """As click's, but misuse is one line as every failure is."""
        if not standalone_mode:
            return super().main(args, prog_name, standalone_mode=False, **extra)
        try:
            status = super().main(args, prog_name, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as help_asked:
            help_asked.show()
            sys.exit(help_asked.exit_code)
        except click.UsageError as error:
            command = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
            failure = Misuse(f"{error.format_message()}{command}")
            failure.show()
            sys.exit(failure.exit_code)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except click.Abort:
            say("cronstream: interrupted", err=True)
            sys.exit(130)
        sys.exit(status if isinstance(status, int) else 0)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cronstream")
def cli() -> None:
    """Cron at scale, driven by change data capture.

    Servers are found by CRONSTREAM_* variables; where the environment names none, by .local/env in
    the current folder, which `make up` writes.
    """


def main() -> None:
    """The entry point."""
    cli(prog_name="cronstream")
