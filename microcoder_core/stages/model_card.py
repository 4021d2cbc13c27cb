"""The model card that is written with a trained model."""

from __future__ import annotations

from microcoder_core import __version__
from microcoder_core.grpo.config import TrainConfig
from microcoder_core.stages.results import TrainResult

_CARD = """---
library_name: transformers
pipeline_tag: text-generation
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


def model_card(*, model: str, config: TrainConfig, result: TrainResult, dataset_sha256: str) -> str:
    """The card as Markdown with a YAML head, as the hub reads it."""
    return _CARD.format(
        base=model,
        version=__version__,
        dataset=dataset_sha256,
        config=config,
        result=result,
        stages=", ".join(f"({start}, {temperature:g})" for start, temperature in result.stages),
        first=_number(result.first.get("reward")),
        last=_number(result.last.get("reward")),
    )


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
