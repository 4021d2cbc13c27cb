"""Problems that a benchmark holds too: by statement, by reference solution, by shared word n-grams.

Covers: equal statements, equal reference solutions (names aside), statements that share a good part of their words in order.
Does not cover: the same task told in other words (no embedding is used).

The paper drops a problem when 16-gram similarity reaches 0.22. A statement of under 16 words has no 16-gram at all (642 of MBPP's 974), so
pairs with a short side are compared by 8-grams, with a higher share. Statements under 8 words are only ever compared whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from pydantic import Field

from microcoder_core.config import Config
from microcoder_core.data.duplicates import fingerprint, reference_forms
from microcoder_core.data.text import normalised_statement, words
from microcoder_core.records import Dropped, Problem


class OverlapConfig(Config):
    """When a problem counts as one of the problems to exclude."""

    by_reference: bool = True
    """A reference solution in common, names, comments and layout aside."""
    ngram_size: int = Field(default=16, ge=1)
    """Words of an n-gram (paper: 16)."""
    ngram_share: float | None = Field(default=0.22, gt=0, le=1)
    """Share of the n-grams of the shorter statement found in the other one (paper: 0.22). null switches the rule off."""
    short_ngram_size: int = Field(default=8, ge=1)
    """Words of an n-gram where the shorter statement has under `2 * ngram_size` words (open-r1 uses 8)."""
    short_ngram_share: float | None = Field(default=0.6, gt=0, le=1)
    """As `ngram_share`, for such pairs. Chosen: see the figures in docs/data.md. null switches the rule off."""


class NgramIndex:
    """Which text holds which n-grams, for one length of n-gram."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._texts: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, text: int, tokens: list[str]) -> None:
        """Adds the n-grams of a text known by its number."""
        for gram in ngrams(tokens, self._size):
            self._texts[gram].append(text)

    def shared(self, tokens: list[str]) -> Counter[int]:
        """Number of distinct n-grams that `tokens` shares with each text."""
        return Counter(text for gram in ngrams(tokens, self._size) for text in self._texts.get(gram, ()))


def ngrams(tokens: list[str], size: int) -> set[int]:
    """Hashes of the distinct n-grams."""
    return {hash(tuple(tokens[start : start + size])) for start in range(len(tokens) - size + 1)}


class OverlapFilter:
    """Knows the problems to exclude; memory holds hashes of them only."""

    def __init__(self, config: OverlapConfig, exclude: Iterable[Problem] = ()) -> None:
        self._config = config
        self._ids: list[str] = []
        self._num_words: list[int] = []
        self._known: dict[bytes, str] = {}
        self._long = NgramIndex(config.ngram_size)
        self._short = NgramIndex(config.short_ngram_size)
        for problem in exclude:
            self._add(problem)

    def _add(self, problem: Problem) -> None:
        tokens = words(problem.statement)
        for key in self._keys(problem):
            self._known.setdefault(key, problem.problem_id)
        self._long.add(len(self._ids), tokens)
        self._short.add(len(self._ids), tokens)
        self._ids.append(problem.problem_id)
        self._num_words.append(len(tokens))

    def __call__(self, problem: Problem) -> Problem | Dropped:
        """The problem where it overlaps with none of those to exclude, or which one it overlaps with."""
        for key, reason in self._keys(problem).items():
            if key in self._known:
                return Dropped(record_id=problem.problem_id, reason=reason, detail=f"same as {self._known[key]}")
        shared = self._shared_ngrams(words(problem.statement))
        return problem if shared is None else Dropped(record_id=problem.problem_id, reason="overlap_ngrams", detail=shared)

    def _keys(self, problem: Problem) -> dict[bytes, str]:
        keys = {fingerprint("statement", normalised_statement(problem.statement)): "overlap_statement"}
        if self._config.by_reference:
            keys |= {fingerprint("reference", form): "overlap_reference" for form in reference_forms(problem)}
        return keys

    def _shared_ngrams(self, tokens: list[str]) -> str | None:
        """The text to exclude that shares too many n-grams, in words, or None."""
        config = self._config
        long_pair = 2 * config.ngram_size
        rules = (
            (self._long, config.ngram_size, config.ngram_share, range(long_pair, len(tokens) + max(self._num_words, default=0) + 1)),
            (self._short, config.short_ngram_size, config.short_ngram_share, range(long_pair)),
        )
        for index, size, share, applies in rules:
            if share is None:
                continue
            for text, count in index.shared(tokens).items():
                shorter = min(len(tokens), self._num_words[text])
                if shorter in applies and count >= share * (shorter - size + 1):
                    return f"shares {count} {size}-grams with {self._ids[text]}"
        return None
