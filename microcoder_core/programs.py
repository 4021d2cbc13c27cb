"""The program of a completion. Standard library only.

Covers: the last complete fenced block (``` or ~~~, with or without a language tag, indented or not, Windows line ends); an open
fence that counts to the end of a response that was not cut off; a response without any fence that is Python as it stands;
`<think>` parts, which hold no answer.
Does not cover: choosing between several complete blocks (the last one is the answer), languages other than Python.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Literal, TypeVar

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})(?P<info>[^`\n]*)$")
_CLOSING_INDENT = 3
"""How much further in than its opening a closing fence may stand, as in CommonMark: a fence in a docstring stands further in."""
_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)


def extract_program(text: str, finish_reason: Literal["stop", "length"] = "stop") -> str | None:
    """The program in a response, or None where there is none to grade.

    Args:
        text: The response as the model wrote it.
        finish_reason: `length` where the response was cut off: an open fence then holds no whole program, and an earlier complete
            block is not the answer that the model was writing.
    """
    text = _without_thinking(text.replace("\r\n", "\n"))
    blocks, open_block = _fenced_blocks(text)
    if open_block is not None:
        return None if finish_reason == "length" else _non_blank(open_block)
    if blocks:
        return _non_blank(blocks[-1])
    return text if text.strip() and parses(text) else None


def _without_thinking(text: str) -> str:
    """`text` without closed `<think>` parts; an unclosed one swallows the rest, and a lone `</think>` all before it."""
    text = _THINK.sub("", text)
    if "<think>" in text:
        return text.split("<think>", 1)[0]
    return text.rsplit("</think>", 1)[-1]


def _fenced_blocks(text: str) -> tuple[list[str], str | None]:
    """Contents of the complete blocks, and of the block that is still open at the end."""
    blocks: list[str] = []
    opening: re.Match[str] | None = None
    body: list[str] = []
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if opening is None:
            opening, body = fence, []
        elif fence and _closes(fence, opening):
            blocks.append("\n".join(body) + "\n")
            opening = None
        else:
            body.append(_without_indent(line, len(opening["indent"])))
    return blocks, None if opening is None else "\n".join(body)


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    deeper = len(fence["indent"].expandtabs(4)) - len(opening["indent"].expandtabs(4))
    return fence["mark"].startswith(opening["mark"]) and not fence["info"].strip() and deeper <= _CLOSING_INDENT


def _without_indent(line: str, width: int) -> str:
    """`line` without the indentation of its block: at most `width` blanks."""
    return line[min(width, len(line) - len(line.lstrip(" \t"))) :]


def _non_blank(program: str) -> str | None:
    return program if program.strip() else None


def parses(program: str) -> bool:
    """Whether `program` is Python."""
    return parse(program) is not None


def parse(program: str) -> ast.Module | None:
    """The syntax tree of `program`, or None where it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a SyntaxWarning of a candidate is no news of ours
            return ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Normaliser(ast.NodeTransformer):
    """Renames a program's own names in order of appearance and drops its docstrings."""

    def __init__(self, own_names: frozenset[str]) -> None:
        self._own = own_names
        self._names: dict[str, str] = {}

    def _name(self, name: str) -> str:
        if name not in self._own:
            return name
        return self._names.setdefault(name, f"v{len(self._names)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(id=self._name(node.id), ctx=node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(arg=self._name(node.arg))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._visit_function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self.generic_visit(_without_docstring(node))

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self.generic_visit(_without_docstring(node))

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.name = self._name(node.name)
        node.returns = None
        return self.generic_visit(_without_docstring(node))


_Documented = TypeVar("_Documented", ast.Module, ast.ClassDef, ast.FunctionDef | ast.AsyncFunctionDef)


def _without_docstring(node: _Documented) -> _Documented:
    if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or [ast.Pass()]
    return node


def normalised_program(program: str) -> str | None:
    """`program` with its own names, annotations of arguments, comments, docstrings and layout made alike; None where it is not Python.

    Two programs with one normalised form differ in spelling only. What a program does not define (builtins, imports) keeps its name.
    """
    tree = parse(program)
    if tree is None:
        return None
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    try:
        return ast.dump(_Normaliser(frozenset(own)).visit(tree))
    except RecursionError:
        return None
