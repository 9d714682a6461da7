"""The command line's entry: which commands there are, and what an error looks like.

Imports click only; a command's module is imported when it is called."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence

import click

from automate import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("workspaces", "Make a workspace, or adopt a folder that has Arena-Hard runs."),
    "validate-only": ("checks", "Check everything that can be known before a GPU is asked for."),
    "plan": ("planning", "Forecast GPU-hours, walltime and finish, and propose --time and batch size."),
    "generate": ("generating", "Generate the answers of models that lack them."),
    "judge": ("judging", "Plan, render and submit judge batches."),
    "serve": ("serving", "Serve models by a fleet of servers; look at it, scale it, stop it."),
    "router": ("routing", "One OpenAI-compatible address over a fleet's workers, for other programs."),
    "run": ("running", "Generate, judge and report, as one chain of jobs."),
    "status": ("status", "Show which answers and judgments are complete, missing, invalid or stale."),
    "repair": ("status", "Do exactly what is missing or invalid: mend, generate, judge."),
    "monitor": ("watching", "Show jobs, progress of each model, logs and failures."),
    "leaderboard": ("leaderboard", "Show scores with intervals, ranks and the quality of the judge."),
    "curves": ("curves", "Score over training steps, by run, rank and learning rate, with plots."),
    "report": ("report", "Write one page to send to a colleague: scores, curves, judge quality, games."),
    "cancel": ("watching", "Cancel this campaign's jobs, and no others."),
    "nodes": ("nodes", "Show nodes that broke jobs, and forgive them."),
    "logs": ("watching", "Show a batch's logs."),
    "validation": ("validation", "Flock AI Arena validation: fetch assignments, validate them as jobs, submit."),
    "pool": ("pool", "Funded benchmark pools: data sets, leaderboards, rewards."),
    "demo": ("demos", "Run a whole campaign on bundled examples, here and now."),
    "rehearse": ("rehearsing", "Play a campaign on a rehearsed cluster, to see how a plan behaves."),
    "doctor": ("doctoring", "Check this machine, the cluster, and with --job a compute node."),
    "bundle": ("doctoring", "Pack what a bug report needs, without secrets."),
    "export": ("keeping", "Put a campaign into one archive, before its workspace expires."),
    "import": ("keeping", "Take an archive into a new workspace, or into one that is there."),
    "run-batch": ("inside", "(used by job scripts) Run one batch inside its job."),
    "run-worker": ("inside", "(used by job scripts) Run one model server of a fleet inside its job."),
    "run-answers": ("inside", "(used by job scripts) Generate one batch of answers inside its job."),
    "run-round": ("inside", "(used by job scripts) Answer one round of benchmark pools inside its job."),
    "write-report": ("inside", "(used by the report job) Write leaderboard, curves and report."),
    "hand-in": ("inside", "(used by the refill job) Hand in what fits now."),
    "local-runner": ("inside", "(used by the local executor) Run the local queue."),
    "doctor-probe": ("doctoring", "(used by the doctor's job) Look at a compute node."),
}
HIDDEN = {"run-batch", "run-worker", "run-answers", "run-round", "write-report", "hand-in", "local-runner",
          "doctor-probe"}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called.

    `table`: for each command its module in `package` and a line of help; `hidden` ones are not listed.
    """

    def __init__(self, name: str | None = None, *, table: Mapping[str, tuple[str, str]],
                 hidden: Collection[str] = (), package: str = "automate.cli",
                 callback: Callable[..., object] | None = None, params: list[click.Parameter] | None = None,
                 help: str | None = None, context_settings: dict[str, object] | None = None) -> None:
        super().__init__(name, callback=callback, params=params, help=help, context_settings=context_settings)
        self.table, self.secret, self.package = table, hidden, package

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.table:
            return None
        module = importlib.import_module(f"{self.package}.{self.table[name][0]}")
        attribute = f"{name}_" if name in ("import", "list") else name.replace("-", "_")  # words of Python's own
        command = getattr(module, attribute)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands from the table, so that none has to be imported for it."""
        rows = [(name, text) for name, (_, text) in self.table.items() if name not in self.secret]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.table and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], [n for n in self.table if n not in self.secret], n=1)
            hint = f" Did you mean '{near[0]}'?" if near else f" See '{ctx.command_path} --help'."
            ctx.fail(f"no command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, table=COMMANDS, hidden=HIDDEN,
             context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="flock-hpc")
def cli() -> None:
    """LLM evaluation campaigns on a Slurm cluster.

    A list of models becomes Slurm jobs that start a vLLM judge and play every Arena-Hard game in both orders.
    Begin with 'flock-hpc demo', then 'flock-hpc init'.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return call(cli, "flock-hpc", list(argv) if argv is not None else None)


def call(command: click.Command, name: str, argv: list[str] | None) -> int:
    """Run a command; returns the exit status. An error that a user can mend is shown without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without a character gets a question mark
    try:
        result = command.main(args=argv, prog_name=name, standalone_mode=False)
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        from automate.errors import visible

        shown = io.StringIO()
        error.show(shown)
        click.echo(visible(shown.getvalue()), err=True, nl=False)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except Exception as error:
        from automate.errors import FlockError, StorageError

        if isinstance(error, OSError) and _output_failed(error):
            error = StorageError.of(error, "standard output", "write what is printed")
        if not isinstance(error, FlockError):
            raise
        click.secho("Error: ", fg="red", bold=True, err=True, nl=False)
        click.echo(str(error), err=True)
        return 1


def _output_failed(error: OSError) -> bool:
    """Whether standard output can't be written: one more line fails in the same way.

    It is then led to nowhere, so that Python's end doesn't fail over it once more.
    """
    if error.filename is not None or sys.stdout is None or sys.stdout.closed:
        return False
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as again:
        if again.errno != error.errno:
            return False
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
