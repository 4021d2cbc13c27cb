"""`microcoder`: names the commands and says what an error means. Each command's module is imported only when it is called."""

from __future__ import annotations

import errno
import importlib
import logging
import sys
from typing import Any

import click

from microcoder_core import __version__
from microcoder_core.cpus import is_main_process
from microcoder_core.errors import EXIT_FAILED, EXIT_USAGE, InputError, MicrocoderError, StageStopped
from microcoder_core.interrupt import sigterm_raises, stop_exit_code

COMMANDS = {
    "doctor": ("microcoder_core.cli.doctor:doctor", "What is installed, which sandbox layers hold, what can be reached."),
    "data": ("microcoder_core.cli.data:data", "Import, curate, show and export problems."),
    "judge": ("microcoder_core.cli.judge:judge", "Run programs on the tests of their problems."),
    "probe": ("microcoder_core.cli.probe:probe", "Measure response diversity and choose the temperature."),
    "train": ("microcoder_core.cli.train:train", "Train a model with MicroCoder-GRPO."),
    "generate": ("microcoder_core.cli.generate:generate", "Show what a model writes for a prompt or a problem."),
    "serve-model": ("microcoder_core.cli.serve_model:serve_model", "Serve a model with vLLM for sampler.kind=vllm_server."),
    "evaluate": ("microcoder_core.cli.evaluate:evaluate", "Measure pass@k of a model."),
    "model": ("microcoder_core.cli.model:model", "Import a model from GGUF; show or upload a trained one."),
    "promote": ("microcoder_core.cli.promote:promote", "Register a trained model; make it champion if it is better."),
    "report": ("microcoder_core.cli.report:report", "Write one HTML page about a run."),
    "pipeline": ("pipelines.cli:pipeline", "Run or compile the whole pipeline."),
}
"""Command -> where it is, and its line in `microcoder --help` (which imports none of them)."""


class LazyGroup(click.Group):
    """A group whose commands are imported when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="microcoder")
@click.option("--verbose", "-v", is_flag=True, help="Log more, and show tracebacks.")
def cli(verbose: bool) -> None:
    """Reinforcement-learning post-training of code models (MicroCoder-GRPO)."""
    level = logging.INFO if is_main_process() else logging.WARNING
    logging.basicConfig(level=logging.DEBUG if verbose else level, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    for noisy in ("httpx", "httpx2", "urllib3", "matplotlib", "alembic", "mlflow", "filelock", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def main(arguments: list[str] | None = None) -> Any:
    """Runs the command line; the exit code is the one of the design (0 done, 1 failed, 2 usage, 3 cancelled, 143 SIGTERM)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with sigterm_raises(), cli.make_context("microcoder", list(arguments)) as context:
            cli.invoke(context)
        sys.exit(0)
    except click.exceptions.Exit as end:  # --help and --version
        sys.exit(end.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "microcoder"
        _fail(f"error: {' '.join(error.format_message().split()).removesuffix('.')}; see {command} -h", EXIT_USAGE)
    except click.ClickException as error:
        _fail(f"error: {error.format_message()}", error.exit_code)
    except KeyboardInterrupt as stop:
        _fail("cancelled", stop_exit_code(stop))
    except InputError as error:
        _fail(f"error: {error}", EXIT_USAGE)
    except StageStopped as error:
        _fail(str(error), error.exit_code)
    except MicrocoderError as error:
        _fail(f"failed: {error}", EXIT_FAILED)
    except BrokenPipeError:  # the reader of our output went away, as in `microcoder ... | head`
        sys.stderr.close()
        sys.exit(EXIT_FAILED)
    except Exception as error:
        if "-v" in arguments or "--verbose" in arguments:
            raise
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _fail("failed: no space is left on the disk; free some, then run again (train and pipeline: with --resume)", EXIT_FAILED)
        _fail(
            f"failed: {type(error).__name__}: {' '.join(str(error).split())} (run again with -v before the command for the traceback)",
            EXIT_FAILED,
        )


def _fail(message: str, exit_code: int) -> None:
    click.echo(message, err=True)
    sys.exit(exit_code)
