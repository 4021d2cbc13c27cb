"""How a problem becomes a prompt. Saved with the model, so that train, evaluate and generate ask alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from microcoder_core.config import Config, build_config
from microcoder_core.errors import InputError
from microcoder_core.records import Problem
from microcoder_core.storage.atomic import write_text

PROMPT_FILE = "prompt_template.json"

_CHAT_TEXT = """{statement}

{form}
{starter_code}Answer with one Python program in a ```python block."""
_STDIN_FORM = "Read the input from standard input and write the answer to standard output."
_FUNCTION_FORM = "Define the function `{entry_point}`; it is called with the arguments and must return the answer."


class PromptTemplate(Config):
    """Turns a problem into the tokens that a model continues."""

    kind: Literal["chat", "plain"] = "chat"
    """`chat`: the text becomes a user message under the tokenizer's chat template; `plain`: the text is the prompt."""
    system: str | None = None
    """System message (kind `chat`)."""
    text: str = _CHAT_TEXT
    """With the fields {statement}, {form}, {starter_code} and {entry_point}. The default's wording is chosen, untested."""
    thinking: bool | None = None
    """Passed to the chat template as `enable_thinking`; null leaves it to the template."""

    def render_text(self, problem: Problem) -> str:
        """The text for one problem, before any chat template."""
        form = _STDIN_FORM if problem.form == "stdin" else _FUNCTION_FORM.format(entry_point=problem.entry_point)
        starter = f"Start from this code:\n```python\n{problem.starter_code.rstrip()}\n```\n" if problem.starter_code else ""
        fields = {"{statement}": problem.statement, "{form}": form, "{starter_code}": starter, "{entry_point}": problem.entry_point or ""}
        text = self.text
        for field in ("{form}", "{starter_code}", "{entry_point}", "{statement}"):  # the statement last: it may hold braces
            text = text.replace(field, fields[field])
        return text

    def token_ids(self, text: str, tokenizer: Any) -> list[int]:
        """`text` as the tokens of a prompt."""
        if self.kind == "plain":
            return list(tokenizer(text, add_special_tokens=False)["input_ids"])
        messages = [{"role": "system", "content": self.system}] if self.system else []
        messages.append({"role": "user", "content": text})
        options = {} if self.thinking is None else {"enable_thinking": self.thinking}
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)
        return list(tokenizer(prompt, add_special_tokens=False)["input_ids"])

    def save(self, model_folder: Path) -> None:
        """Writes the template beside the weights."""
        write_text(model_folder / PROMPT_FILE, self.model_dump_json(indent=2) + "\n")


def load_prompt_template(model_folder: Path, tokenizer: Any) -> PromptTemplate:
    """The template saved with a model; for a model without one, `chat` where its tokenizer has a chat template, else `plain`."""
    file = model_folder / PROMPT_FILE
    if file.is_file():
        try:
            return build_config(PromptTemplate, json.loads(file.read_text(encoding="utf-8")), str(file))
        except ValueError as error:
            raise InputError(f"{file}: {error}") from None
    return PromptTemplate(kind="chat" if getattr(tokenizer, "chat_template", None) else "plain")
