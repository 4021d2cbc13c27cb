"""Measures of how different the responses to one prompt are. All are in 0-1; token ids in, no model needed.

`distinct_n` is the primary one: the published curves are not 0 at T = 0 and fall when a response repeats itself, which fits pooled
distinct n-grams and no pairwise dissimilarity (facts of arXiv 2603.07777; its formula is not published).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

from microcoder_core.programs import extract_program, normalised_program
from microcoder_core.records import Completion

Tokens = Sequence[int]
N = 4
"""Length of the n-grams (chosen; the paper states none)."""


def distinct_n(responses: Sequence[Tokens], n: int = N) -> float | None:
    """Distinct n-grams over all n-grams, pooled over the responses to one prompt; None where none is n tokens long."""
    grams = [gram for response in responses for gram in _grams(response, n)]
    return len(set(grams)) / len(grams) if grams else None


def pairwise_dissimilarity(responses: Sequence[Tokens], n: int = N) -> float | None:
    """1 - mean overlap of n-gram multisets over all pairs of responses; None for fewer than two of n tokens."""
    counts = [Counter(_grams(response, n)) for response in responses]
    counts = [count for count in counts if count]
    if len(counts) < 2:
        return None
    overlaps = [(one & other).total() / max(one.total(), other.total()) for one, other in combinations(counts, 2)]
    return 1 - sum(overlaps) / len(overlaps)


def distinct_programs(completions: Sequence[Completion]) -> float | None:
    """Distinct programs, by normalised syntax tree, over programs that parse; None where none does."""
    programs = [extract_program(completion.text, completion.finish_reason) for completion in completions]
    forms = [form for form in (normalised_program(program) for program in programs if program) if form]
    return len(set(forms)) / len(forms) if forms else None


def token_entropy(completions: Sequence[Completion]) -> float | None:
    """Mean negative log-probability of the sampled tokens, nats: an unbiased estimate of the entropy at the sampling temperature."""
    logprobs = [logprob for completion in completions for logprob in completion.logprobs or ()]
    return -sum(logprobs) / len(logprobs) if logprobs else None


def mean_of(values: Sequence[float | None]) -> float | None:
    """Mean of the values that are there; None where none is."""
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def _grams(tokens: Tokens, n: int) -> Iterator[tuple[int, ...]]:
    return (tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))
