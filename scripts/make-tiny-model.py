#!/usr/bin/env python3
"""Make a tiny Llama with random weights, its own tokenizer and its own chat template.

For tests only. The model knows nothing and answers nonsense, but any server that loads a
Hugging Face folder loads it in no time, on any machine and without a network. The same
command always makes the same model.

Needs torch, transformers and tokenizers: run it with the Python of the test vLLM's virtual
environment (scripts/setup-test-vllm.sh does).
"""

# torch, transformers and tokenizers live in another virtual environment than the project's.
# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call"

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

VOCABULARY = 1024
HIDDEN = 128
LAYERS = 2
HEADS = 4
SEED = 20_240_229

LABELS = ("[[A>>B]]", "[[A>B]]", "[[A=B]]", "[[B>A]]", "[[B>>A]]")
BOS, EOS, PAD = "<|begin|>", "<|end|>", "<|pad|>"
ROLE_OPEN, ROLE_CLOSE = "<|role|>", "<|text|>"
SPECIAL = (BOS, EOS, PAD, ROLE_OPEN, ROLE_CLOSE)

TEXT = (
    "Please act as an impartial judge and evaluate the quality of the responses provided by two"
    " AI assistants to the user prompt displayed below.",
    "You will be given assistant A's answer and assistant B's answer. Your job is to evaluate"
    " which assistant's answer is better.",
    "Begin your evaluation by generating your own answer to the prompt. You must provide your"
    " answers before judging any answers.",
    "When evaluating the assistants' answers, compare both assistants' answers with your answer."
    " You must identify and correct any mistakes or inaccurate information.",
    "Then consider if the assistant's answers are helpful, relevant, and concise.",
    "After providing your explanation, you must output only one of the following choices as your"
    " final verdict with a label:",
    "1. Assistant A is significantly better: [[A>>B]]",
    "2. Assistant A is slightly better: [[A>B]]",
    "3. Tie, relatively the same: [[A=B]]",
    "4. Assistant B is slightly better: [[B>A]]",
    "5. Assistant B is significantly better: [[B>>A]]",
    'Example output: "My final verdict is tie: [[A=B]]".',
    "<|User Prompt|> <|The Start of Assistant A's Answer|> <|The End of Assistant A's Answer|>",
    "def main() -> None:\n    for number in range(10):\n        print(number * 2)\n",
    "The quick brown fox jumps over the lazy dog. 0 1 2 3 4 5 6 7 8 9 10 42 100 2024",
)

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "<|role|>{{ message['role'] }}<|text|>{{ message['content'] }}{{ eos_token }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|role|>assistant<|text|>{% endif %}"
)


def make_tokenizer(out: Path, max_position: int) -> int:
    """Train a byte-level tokenizer on the text above, save it, and return its number of tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator([*TEXT, *LABELS], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        additional_special_tokens=[ROLE_OPEN, ROLE_CLOSE],
        model_max_length=max_position,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(str(out))
    return len(tokenizer)


def make_weights(out: Path, vocabulary: int, max_position: int) -> None:
    """Save a Llama of two layers with random weights, always the same ones."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(SEED)
    tokens = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        max_position_embeddings=max_position,
        tie_word_embeddings=True,
        **tokens,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.generation_config = GenerationConfig(**tokens)
    model.save_pretrained(str(out))


def make_model(out: Path, max_position: int) -> None:
    """Make the whole model folder; it appears under its name only when it is complete."""
    unfinished = out.with_name(f"{out.name}.unfinished-{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        make_weights(unfinished, make_tokenizer(unfinished, max_position), max_position)
        unfinished.rename(out)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def main() -> int:
    """Read the command line and make the model."""
    parser = argparse.ArgumentParser(description="Make a tiny Llama with random weights, for tests.")
    parser.add_argument("out", type=Path, help="folder to make; must not exist, or be empty")
    parser.add_argument("--max-position", type=int, default=16_384, metavar="N", help="longest context")
    options = parser.parse_args()
    out: Path = options.out.absolute()
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        print(f"make-tiny-model: {out} exists and is not an empty folder", file=sys.stderr)
        return 2
    if options.max_position < 16:
        print("make-tiny-model: --max-position must be at least 16", file=sys.stderr)
        return 2
    make_model(out, options.max_position)
    size = sum(path.stat().st_size for path in out.rglob("*"))
    print(f"make-tiny-model: {out} ({size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
