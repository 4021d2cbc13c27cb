"""What the stages answer, as written to `stage.json` and read by later stages."""

from __future__ import annotations

from pydantic import Field

from microcoder_core.records import Record


class GridPoint(Record):
    """The untrained model at one temperature. Shares and diversity are in 0-1."""

    temperature: float
    diversity: float
    """Pooled distinct-4 over tokens, mean over prompts."""
    pairwise_dissimilarity: float
    """1 - mean pairwise 4-gram multiset overlap, mean over prompts."""
    token_entropy: float
    """Mean negative log-probability of the sampled tokens, nats."""
    distinct_programs_frac: float
    """Distinct programs (normalised AST) over programs, mean over prompts."""
    pass_at_1: float
    mean_length: float
    """Tokens a response."""
    truncated_frac: float


class Pilot(Record):
    """Diversity over a few pilot updates at one temperature."""

    temperature: float
    diversity: tuple[float, ...]
    """Before the first update, then after each one."""
    late_change: float
    """Fitted change over the later half of the updates, over the fitted value at its start."""
    swing: float
    """Largest minus smallest diversity, over the first."""
    holds: bool


class ProbeResult(Record):
    """The chosen temperature with the numbers that led to it."""

    temperature: float
    reason: str
    grid: tuple[GridPoint, ...]
    pilots: tuple[Pilot, ...]


class TrainResult(Record):
    """How training went."""

    steps: int
    samples: int
    tokens: int
    """Completion tokens sampled."""
    stages: tuple[tuple[int, float], ...]
    """The temperature schedule that ran: (first step, temperature) of each stage."""
    first: dict[str, float]
    """Mean of each metric over the first tenth of the steps."""
    last: dict[str, float]
    """Mean of each metric over the last tenth of the steps."""


class ScoreTable(Record):
    """pass@k of a group of problems."""

    problems: int
    pass_at_k: dict[str, float]
    """By k, as text: {"1": 0.59, "5": 0.8}. A problem without enough graded samples is left out of that k."""


class EvaluationResult(Record):
    """One model on one data set."""

    model: str
    problems: int
    samples: int
    """Completions a problem."""
    pass_at_k: dict[str, float]
    by_difficulty: dict[str, ScoreTable] = Field(default_factory=dict)
    verdicts: dict[str, float]
    """Share of completions by verdict."""
    ungraded: int
    """Completions that the judge could not grade (its fault); they enter no pass@k."""
    diversity: float
    distinct_programs_frac: float
    mean_length: float
    truncated_frac: float
    temperature: float
    max_new_tokens: int
    date_from: str | None = None
    date_to: str | None = None


class ProblemScore(Record):
    """One problem of an evaluation: a line of `problems.jsonl`."""

    problem_id: str
    difficulty: str | None = None
    date: str | None = None
    samples: int
    correct: int
    ungraded: int = 0


class PromotionResult(Record):
    """Whether the trained model took over, and why."""

    promoted: bool
    reason: str
    base_pass_at_1: float
    trained_pass_at_1: float
    difference: float
    ci_low: float
    """Lower end of the paired-bootstrap confidence interval of the difference."""
    ci_high: float
    margin: float
    confidence: float
    """Of that interval."""
    model_name: str
    version: str | None = None
    """Version in the model registry; null where no registry could be reached."""


class ImportedModelResult(Record):
    """What was imported from a GGUF file."""

    architecture: str
    """As the file names it (`general.architecture`)."""
    quantization: str
    """Of most weights in the file, such as `Q4_1`: what precision was lost before the import."""
    license: str | None
    """As the file names it (`general.license`)."""
    parameters: int
    end_tokens: tuple[str, ...]
    """Any of which ends a response."""
    has_chat_template: bool


class PushResult(Record):
    """What was uploaded to the hub."""

    repo: str
    url: str
    files: tuple[str, ...]
    """By their paths in the repository."""
