"""The model card that is written with a trained model, and that `microcoder model card` shows."""

from __future__ import annotations

from pathlib import Path

from microcoder_core.config import build_config
from microcoder_core.grpo.config import TrainConfig
from microcoder_core.records import parse_record
from microcoder_core.stages.results import TrainResult
from microcoder_core.storage.stage_output import STAGE_FILE, StageRecord, read_stage_record

_CARD = """---
library_name: transformers
{base_model}pipeline_tag: text-generation
tags: [code, reinforcement-learning, grpo, microcoder]
---

# {base}, trained with MicroCoder-GRPO

Trained by microcoder {version} from `{base}` on a data set with content hash `{dataset}`.

| | |
|---|---|
| steps | {result.steps} |
| completions | {result.samples} |
| completion tokens | {result.tokens} |
| temperature stages (first step, T) | {stages} |
| reward, first and last tenth of the steps | {first} -> {last} |

Ask with the prompt template in `prompt_template.json`: it is the one that the model was trained with. The whole configuration is in
`training/config.yaml`, every step's metrics in `training/metrics.jsonl`.

Rewards above are those of the training problems; what the model gained on problems that it has not seen is for `microcoder evaluate`
to say. The model runs no code itself; run what it writes in a sandbox only.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
```

Seed {config.seed}, group size {config.rollout.group_size}, length limit {config.rollout.max_new_tokens} tokens, mask
{config.mask.kind} (rho {config.mask.rho:g}), clip {config.loss.clip_low:g} / {config.loss.clip_high:g}, learning rate
{config.optimizer.learning_rate:g}.
"""


def model_card(record: StageRecord) -> str:
    """The card of a trained model as Markdown with a YAML head, as the hub reads it."""
    values = {name: record.config[name] for name in TrainConfig.model_fields if name in record.config}
    config = build_config(TrainConfig, values, f"{STAGE_FILE}: config")
    result = parse_record(TrainResult, record.result, f"{STAGE_FILE}: result")
    model = record.inputs.get("model", "unknown")
    on_hub = record.inputs.get("model_sha256") == f"hub:{model}"
    return _CARD.format(
        base=model if on_hub else Path(model).name,  # a path says nothing to others
        base_model=f"base_model: {model}\n" if on_hub else "",
        version=record.version,
        dataset=record.inputs.get("problems", "unknown"),
        config=config,
        result=result,
        stages=", ".join(f"({start}, {temperature:g})" for start, temperature in result.stages),
        first=_number(result.first.get("reward")),
        last=_number(result.last.get("reward")),
    )


def card_of_folder(folder: Path) -> str:
    """The card of the trained model in a folder, from what its stage record says.

    Raises:
        InputError: No trained model there.
    """
    return model_card(read_stage_record(folder, "train"))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
