"""Configuration of the trainer. The defaults are those of the `microcoder` preset; `configs/` holds the presets.

Sources: "paper" is arXiv 2603.07777; "DAPO" is arXiv 2503.14476; "DeepCoder" is its published training script.
"""

from __future__ import annotations

import itertools
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from microcoder_core.config import Config
from microcoder_core.records import Outcome
from microcoder_core.sampling.base import Dtype
from microcoder_core.sampling.config import SamplerConfig
from microcoder_core.storage.s3_address import parse_s3_address

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


FEWEST_STEPS_A_STAGE = 20
"""Stages that follow each other faster are a ramp. Chosen: the paper's stage lasts about 140."""


class AutoTemperatureConfig(Config):
    """The next temperature when diversity has stayed low: one jump, then a hold (insights TEMP-3, TEMP-9, TEMP-10)."""

    temperatures: Annotated[tuple[Positive, ...], Field(min_length=1)]
    """Those that follow the first stage's, in their order."""
    diversity_floor: Share = 0.6
    """Smoothed diversity below this is low. Chosen: the lower end of where the paper's stable runs stay."""
    smoothing: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Weight of a step in the exponential mean of diversity. Chosen, untested."""
    patience_steps: Count = 10
    """Steps in a row for which it must be low. Chosen, untested."""
    hold_steps: Annotated[int, Field(ge=FEWEST_STEPS_A_STAGE)] = 50
    """Steps that a temperature lasts at least, the first one too. Chosen, untested."""


class RolloutConfig(Config):
    """What is sampled in a step."""

    train_batch_size: Count = 64
    """Problems a rollout. Source: paper (32, 64 and 128 compared, 64 best)."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Completions a problem, G. Source: a third party's reading of the paper."""
    max_new_tokens: Count = 4096
    """Length limit of a completion, L_max, tokens. Source: paper, headline 1.7B and 4B runs."""
    dynamic_sampling_rounds: Annotated[int, Field(ge=0)] = 0
    """Further rounds of a step in which other problems are sampled, until `train_batch_size` of them have both right and wrong completions;
    groups without are left out. Where the rounds bring fewer, the step trains on those. 0 keeps every group. Source: DAPO, eq. 11."""
    temperature_stages: Annotated[tuple[tuple[int, Annotated[float, Field(allow_inf_nan=False)]], ...], Field(min_length=1)] = ((0, 1.2),)
    """(first step, temperature) of each stage: steps, never a ramp (insight TEMP-10). Source: paper, headline runs, constant 1.2."""
    temperature_auto: AutoTemperatureConfig | None = None
    """Stages that begin when diversity falls, in the place of fixed steps; null: off."""
    temperature_from_probe: bool = True
    """Whether a probe's temperature, where one is given, takes the place of the first stage's."""

    @model_validator(mode="after")
    def _stages_in_order(self) -> Self:
        starts = [start for start, _ in self.temperature_stages]
        if starts[0] != 0 or any(late <= early for early, late in itertools.pairwise(starts)):
            raise ValueError(f"rollout.temperature_stages must start at step 0 and rise, got first steps {starts}")
        if any(temperature <= 0 for _, temperature in self.temperature_stages):
            raise ValueError("rollout.temperature_stages: temperatures must be above 0 (greedy samples have no spread to learn from)")
        if any(late - early < FEWEST_STEPS_A_STAGE for early, late in itertools.pairwise(starts)):
            raise ValueError(
                f"rollout.temperature_stages must be at least {FEWEST_STEPS_A_STAGE} steps apart, got first steps {starts}: "
                "insight TEMP-10, never change the temperature continuously; even a short ramp shifts diversity for good"
            )
        if self.temperature_auto is not None and len(starts) > 1:
            raise ValueError("rollout.temperature_auto takes the place of later stages; give rollout.temperature_stages one stage")
        return self


class AdvantageConfig(Config):
    """How rewards become advantages."""

    kind: Literal["group_norm", "group_mean"] = "group_norm"
    """`group_norm`: (r - mean) / std of the group (paper); `group_mean`: r - mean (Dr. GRPO, arXiv 2503.20783)."""
    overlong_buffer_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Soft overlong punishment over the last such part of the length limit; 0 is off. Source: DAPO eq. 13 (4096 of 20480 tokens: 0.2)."""
    overlong_factor: Annotated[float, Field(ge=0)] = 1.0
    """Largest punishment, at the limit. Source: DAPO."""


class MaskConfig(Config):
    """Which truncated completions lose their advantage."""

    kind: Literal["none", "all", "conditional"] = "conditional"
    """`all`: every truncated completion; `conditional`: the paper's four conditions."""
    rho: Share = 0.2
    """Probability that an eligible completion is masked. Source: read off the paper's figures (0.1, 0.2, 0.3 compared)."""
    repeat_tokens: Count = 128
    """m: a completion whose last m tokens equal the m before them is never masked. Source: paper."""
    exempt_repeats: bool = True
    """Whether such a tail does exempt a completion. Source: paper."""
    eligible_outcomes: tuple[Outcome, ...] = (Outcome.CORRECT, Outcome.INCOMPLETE)
    """"non-incorrect". Source: paper's equation (its page once says "correct" only)."""


class LossConfig(Config):
    """The clipped policy loss."""

    clip_low: Share = 0.2
    """eps: the ratio is clipped below at 1 - eps. Source: DAPO practice; the paper gives none."""
    clip_high: Annotated[float, Field(ge=0)] = 0.28
    """eps_high: the ratio is clipped above at 1 + eps_high. Source: DAPO; the paper gives none."""
    dual_clip: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = None
    """c: where the advantage is negative, a token's loss is at most c times its size, however far the ratio rose. null: no bound.
    Source: arXiv 1912.09729; DAPO's recipe has 10."""
    aggregation: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    """Weight of a token: 1 / all tokens (DAPO); 1 / (sequences * tokens of its own) (GRPO); 1 / (sequences * L_max) (Dr. GRPO)."""
    importance_correction: Literal["auto", "token", "none"] = "auto"
    """`token`: the old policy is the trainer's own, and each token is weighted by how much likelier it is for that than it was for the
    sampler; `none`: the old policy is what the sampler recorded; `auto`: `token` for a sampler that does not share the trained model."""
    importance_cap: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """Largest such weight. Source: verl, SkyRL."""
    max_logprob_difference: Positive = 0.1
    """Training stops where the sampler's log-probabilities differ from the trainer's by more than this on average: its weights are not
    the trained ones. Chosen: TRL saw 0.015 with the right weights and 0.2 with stale ones (huggingface/trl#5312)."""
    kl_coef: Annotated[float, Field(ge=0)] = 0.0
    """beta: weight of the k3 estimate of KL(policy || model at the start). 0 keeps no reference model. Source: paper, beta0 = 0."""


class LoraConfig(Config):
    """Low-rank adapters (arXiv 2106.09685): the model itself stays as it is, and only they are trained; merged in at the end."""

    rank: Count = 32
    """Of the adapters' matrices. Chosen: the customary range is 8 to 64."""
    alpha: Positive = 64.0
    """The adapters' part is scaled by alpha / rank. Chosen: twice the rank, as is customary."""
    target_modules: tuple[str, ...] = ()
    """Names of the layers that get adapters; none given: every linear layer but the head."""
    quantize: Literal["nf4"] | None = None
    """`nf4`: the model itself is kept in 4 bits (QLoRA, arXiv 2305.14314; needs bitsandbytes and a GPU)."""


class OptimizerConfig(Config):
    """AdamW and the size of an update."""

    kind: Literal["adamw", "adamw_8bit"] = "adamw"
    """`adamw_8bit` keeps its two moments in 8 bits: 6 bytes a weight less (arXiv 2110.02861; needs bitsandbytes and a GPU)."""

    learning_rate: Positive = 1e-6
    """Source: DeepCoder and DAPO; a third party's reading of the paper."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Optimiser steps of linear warm-up, then constant. Chosen."""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """AdamW betas. Source: torch's defaults."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Chosen: an all-zero-advantage batch must not move the weights."""
    max_grad_norm: Positive = 1.0
    """Gradients are scaled down to this norm. Source: DAPO, DeepCoder."""
    mini_batch_size: Count = 16
    """Problems an optimiser step; a rollout is cut into train_batch_size / mini_batch_size of them. Source: DeepCoder."""
    micro_batch_tokens: Count = 16384
    """Padded tokens in one forward and backward pass. Changes memory and speed, never the loss."""
    shared_row_tokens: Annotated[int, Field(ge=0)] = 1024
    """Completions of one prompt share its forward pass in rows of up to so many tokens; 0: each has a row of its own. Longer rows cost more
    in attention than they save. Changes memory and speed, never the loss. Measured in benchmarks/trainer_bench.md."""


class CheckpointConfig(Config):
    """What is kept so that a run can go on."""

    every_steps: Count = 10
    """A checkpoint is saved after every so many steps, and after the last. Chosen."""
    keep_last: Count = 2
    """Older ones are deleted. Chosen."""
    store: str | None = None
    """`s3://BUCKET/PREFIX`: each checkpoint is copied there too, and a run whose work folder is gone goes on from there. null: none."""

    @field_validator("store")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        return value and str(parse_s3_address(value))


class HealthConfig(Config):
    """When a run has gone wrong, and what is done about it; see grpo/health.py."""

    collapse_share: Share = 0.25
    """Diversity below this share of its first value has collapsed. Chosen: in the paper a run that degenerated into repetition fell from
    0.71 to 0.12."""
    patience_steps: Count = 20
    """Steps in a row before anything is done. Chosen, untested."""
    on_collapse: Literal["stop", "warn"] = "stop"
    """`stop` saves and fails (exit code 1)."""
    hang_deadline_s: Positive = 3600.0
    """Where no completion, verdict or micro-batch ends for so long, the process ends with exit code 1. Chosen."""


class TrainConfig(Config):
    """One training run."""

    seed: Annotated[int, Field(ge=0)] = 0
    """Seeds data order, samples and mask draws."""
    max_steps: Count | None = None
    """Rollouts in all; null: `epochs` passes over the problems."""
    epochs: Positive = 1.0
    """Passes over the problems where `max_steps` is null. The last, partial batch counts as a step."""
    rollout: RolloutConfig = RolloutConfig()
    sampler: SamplerConfig = SamplerConfig()
    """What writes the completions."""
    advantage: AdvantageConfig = AdvantageConfig()
    mask: MaskConfig = MaskConfig()
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    lora: LoraConfig | None = None
    """null: every weight is trained."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    health: HealthConfig = HealthConfig()
    memory_check: bool = True
    """Refuse a training that by its estimate does not fit into memory."""
    judge_deadline_s: Positive = 600.0
    """How long a judge that does not answer is waited for before training saves and stops."""
    sample_steps: Count = 10
    """Completions are kept as samples every so many steps."""
    dtype: Dtype = "auto"
    """Of the computation; `auto` is bfloat16 on a GPU, float32 on a CPU. Weights and optimiser are float32 while training."""
    gradient_checkpointing: bool = False
    """Recomputes activations: less memory, about 20 % slower."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """What several processes keep: `ddp`, each the whole model; `fsdp` (FSDP2), each a part of weights, gradients and optimiser state."""
    torch_threads: Count | None = None
    """CPU threads of torch; null: OMP_NUM_THREADS, else one a core."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.rollout.train_batch_size % self.optimizer.mini_batch_size:
            raise ValueError(
                f"optimizer.mini_batch_size must divide rollout.train_batch_size ({self.rollout.train_batch_size}), "
                f"got {self.optimizer.mini_batch_size}"
            )
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.parallel == "fsdp" and self.optimizer.kind == "adamw_8bit":
            raise ValueError("optimizer.kind adamw_8bit does not know sharded weights; use adamw with parallel=fsdp")
        if self.parallel == "fsdp" and self.lora is not None and self.lora.quantize:
            raise ValueError("lora.quantize cannot be sharded; use parallel=ddp, or lora without it")
        return self
