"""The nano model's tokenizer: byte-level BPE trained on drills, with the code fences as tokens of their own."""

from __future__ import annotations

import random
from typing import Any

from microcoder_core.nano.corpus import CLOSE, FENCE, sample_document, training_drills

VOCABULARY = 512
PAD, END = "<|pad|>", "<|end|>"
_DOCUMENTS_A_DRILL = 6


def build_tokenizer(seed: int) -> Any:
    """A PreTrainedTokenizerFast; the same drills and seed give the same one on every machine."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 2,  # the two fences come on top
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed), trainer)
    # Not special: decoding keeps them, and so the program can be found in the text.
    tokenizer.add_tokens([AddedToken(FENCE, normalized=False), AddedToken(CLOSE, normalized=False)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, padding_side="left", clean_up_tokenization_spaces=False
    )


def _texts(seed: int) -> list[str]:
    rng = random.Random(f"tokenizer {seed}")
    documents = [sample_document(drill, rng) for drill in training_drills() for _ in range(_DOCUMENTS_A_DRILL)]
    return [document.prompt + document.response.removeprefix(FENCE) for document in documents if document.ends]
