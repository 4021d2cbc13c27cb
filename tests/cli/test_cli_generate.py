from pathlib import Path

import pytest
from click.testing import CliRunner

from microcoder_core.cli.main import cli
from microcoder_core.errors import InputError
from microcoder_core.storage.datasets import read_problems


def test_shows_what_the_model_writes_for_a_problem_with_the_verdict(drills: Path) -> None:
    problem = next(read_problems(drills))
    arguments = ["generate", "--model", "nano", "--problems", str(drills), "--problem", problem.problem_id, "--samples", "2"]
    done = CliRunner().invoke(cli, [*arguments, "--max-new-tokens", "64"], catch_exceptions=False)
    assert done.output.count("-- ") == 2
    assert done.output.count("tests passed") == 2


def test_a_prompt_is_asked_as_it_stands() -> None:
    arguments = [
        "generate",
        "--model",
        "nano",
        "--prompt",
        "Given xs, keep the even numbers.\n",
        "--temperature",
        "0",
        "--max-new-tokens",
        "64",
    ]
    assert "def f(xs)" in CliRunner().invoke(cli, arguments, catch_exceptions=False).output


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--prompt", "x", "--problem", "y"],
        ["--problem", "y"],
        ["--prompt", "x", "--problems", "d"],
        ["--prompt", "x", "--temperature", "nan"],
    ],
)
def test_what_does_not_go_together_is_a_usage_error(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli, ["generate", "--model", "nano", *arguments]).exit_code == 2


def test_an_unknown_problem_is_named(drills: Path) -> None:
    arguments = ["generate", "--model", "nano", "--problems", str(drills), "--problem", "nope"]
    with pytest.raises(InputError, match="holds no problem 'nope'"):
        CliRunner().invoke(cli, arguments, catch_exceptions=False)
