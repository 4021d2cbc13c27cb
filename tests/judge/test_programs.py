"""Programs out of completions, and programs that differ in spelling only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microcoder_core.programs import extract_program, normalised_program, parse, parses

CODE_LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="`~<\r\n"), max_size=12), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```\n", "x = 1\n"),
        ("~~~py\nx = 1\n~~~", "x = 1\n"),
        ("```python\r\nx = 1\r\n```\r\n", "x = 1\n"),
        ("```python title=a\nx = 1\n```", "x = 1\n"),
        ("Try\n```python\nx = 1\n```\nor better\n```python\nx = 2\n```\nDone.", "x = 2\n"),
        ("```python\nx = 1\n```\nNow\n```python\nx = 2", "x = 2"),
        ("````python\n```\nx = 1\n```\n````", "```\nx = 1\n```\n"),
        ("~~~\n```\n~~~", "```\n"),
        ("x = 1\nprint(x)\n", "x = 1\nprint(x)\n"),
        ("", None),
        ("  \n", None),
        ("I cannot do this.", None),
        ("```python\n\n```", None),
        ("```python\n", None),
        ("1. First\n   ```python\n   if x:\n       y = 1\n   ```\n", "if x:\n    y = 1\n"),
        ("\t```python\n\tx = 1\n\t```", "x = 1\n"),
        ("```python\nx = 1\n  ```", "x = 1\n"),
        ("  ```python\nx = 1\n```", "x = 1\n"),
        ("<think>\n```python\nx = 1\n```\n</think>\n```python\nx = 2\n```", "x = 2\n"),
        ("```python\nx = 1\n```\n</think>\nNo code.", None),
        ("<think>\n```python\nx = 1\n```\n", None),
        ("<think>\n\n</think>\n\n```python\nx = 2\n```", "x = 2\n"),
        ("inline ```x = 1``` only", None),
    ],
)
def test_program_of_a_whole_response(text: str, program: str | None) -> None:
    assert extract_program(text) == program


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nx = 1\n```\nNow\n```python\nx = ", None),
        ("```python\nx = 1\n", None),
        ("```python\nx = 1\n```\nand so", "x = 1\n"),
        ("x = 1", "x = 1"),
        ("<think>\nhm", None),
    ],
)
def test_program_of_a_response_cut_off(text: str, program: str | None) -> None:
    assert extract_program(text, "length") == program


def test_fence_in_a_docstring_does_not_end_the_block() -> None:
    code = 'def f():\n    """Use it so:\n\n    ```\n    f()\n    ```\n    """\n    return 1\n'
    assert extract_program(f"Here:\n```python\n{code}```\n") == code


@given(CODE_LINES)
def test_fenced_code_comes_back_as_it_was(lines: list[str]) -> None:
    code = "\n".join(lines) + "\n"
    assert extract_program(f"Text.\n```python\n{code}```\nMore.") == (code if code.strip() else None)


@given(st.text(max_size=200), st.sampled_from(["stop", "length"]))
def test_any_text_is_read_without_a_crash(text: str, reason: str) -> None:
    program = extract_program(text, reason)  # type: ignore[arg-type]
    assert program is None or program.strip()


@pytest.mark.parametrize("text", ["(" * 5000, "x = 1\x00", "\ud800", "0777", "def f(:", "-" * 100_000 + "1"])
def test_what_is_no_python_does_not_parse(text: str) -> None:
    assert not parses(text)


def test_warning_of_a_program_stays_its_own() -> None:
    assert parse("x = 1 is 1\ny = '\\d'") is not None


SAME = "def solve(a, b):\n    total = a + b\n    return total\n"


@pytest.mark.parametrize(
    "other",
    [
        "def f(x, y):\n    s = x + y\n    return s",
        'def solve(a: int, b: int) -> int:\n    """Adds."""\n    total = a + b  # the sum\n\n    return total\n',
        '"""A module."""\ndef solve(a, b):\n  total = (a + b)\n  return total',
    ],
)
def test_programs_that_differ_in_spelling_have_one_form(other: str) -> None:
    assert normalised_program(other) == normalised_program(SAME)


@pytest.mark.parametrize(
    "other",
    [
        "def solve(a, b):\n    total = b + a\n    return total\n",
        "def solve(a, b):\n    total = a - b\n    return total\n",
        "def solve(a, b):\n    total = a + 1\n    return total\n",
        "def solve(a, b):\n    total = a + b\n    return a\n",
        "def solve(a, b):\n    print(a)\n    return a + b\n",
    ],
)
def test_programs_that_differ_have_two_forms(other: str) -> None:
    assert normalised_program(other) != normalised_program(SAME)


def test_builtins_keep_their_names() -> None:
    assert normalised_program("def f(x): return min(x)") != normalised_program("def f(x): return max(x)")


@pytest.mark.parametrize(
    "pair", [('class A:\n    """D."""\n    x = 1', "class A:\n    x = 1"), ('async def f():\n    """D."""', "async def g(): pass")]
)
def test_docstrings_do_not_count(pair: tuple[str, str]) -> None:
    assert normalised_program(pair[0]) == normalised_program(pair[1])


def test_what_is_no_python_has_no_form() -> None:
    assert normalised_program("def f(:") is None
