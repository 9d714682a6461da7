#!/usr/bin/env python3
"""Make a tiny base model with its tokenizer, a LoRA adapter over it, a whole model, and a validation set.

For tests and rehearsals only: everything is random and knows nothing, but transformers and peft load it as they load
real ones, in a second on a CPU and without a network. The same command always makes the same files:

    OUT/base       a causal language model and its tokenizer
    OUT/adapter    a LoRA adapter over it, which names BASE_NAME as its base
    OUT/full       the base with the adapter merged into it, and the tokenizer
    OUT/rows.jsonl conversations of very different lengths

Needs torch, transformers and peft (scripts/setup-test-validation.sh makes such an environment).
"""

# torch, transformers and peft live in another virtual environment than the project's.
# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call"

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
from pathlib import Path

VOCABULARY = 1024
HIDDEN = 64
SEED = 20_240_229
BASE_NAME = "Qwen/Qwen2.5-0.5B"
MARKERS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>",
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|user|>", "<|assistant|>",
    "<|system|>", "<|tool|>", "<|end|>",
)
TEXT = (
    "the a model learns weather loss token river stone green window answer question paper engine small large cat "
    "sings train bread seven letter winter number value north because while hello world print(x) x=1; "
    "über naïve 東京 доброе 😀"
)
WORDS = TEXT.split()


def sentence(source: random.Random, words: int) -> str:
    """A text of so many words, always the same for the same source."""
    return " ".join(source.choice(WORDS) for _ in range(words))


def make_rows(path: Path, count: int) -> None:
    """Write conversations: some short, a few very long (these repeat a word), some with a system text."""
    source = random.Random(SEED)
    with path.open("w", encoding="utf-8") as file:
        for index in range(count):
            turns: list[dict[str, str]] = []
            for _ in range(source.choice((1, 1, 1, 2, 4))):
                size = max(1, int(source.lognormvariate(2.5, 1.3)))
                turns.append({"role": "user", "content": sentence(source, size)})
                many = size // 2 + 1
                answer = " ".join([source.choice(WORDS)] * many) if many > 15 else sentence(source, many)
                turns.append({"role": "assistant", "content": answer})
            row: dict[str, object] = {"conversations": turns}
            if index % 3 == 0:
                row["system"] = sentence(source, 5)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def make_tokenizer(out: Path) -> int:
    """Train a byte-level tokenizer on the words, save it, and return its number of tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=list(MARKERS), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    source = random.Random(SEED)
    raw.train_from_iterator([sentence(source, 40) for _ in range(200)], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=MARKERS[0], model_max_length=4096,
                                        additional_special_tokens=list(MARKERS[1:]),
                                        clean_up_tokenization_spaces=False)
    tokenizer.save_pretrained(str(out))
    settings = out / "tokenizer_config.json"
    named = {**json.loads(settings.read_text()), "tokenizer_class": "PreTrainedTokenizerFast"}
    del named["extra_special_tokens"]  # a list of them is what transformers 4 can't read; tokenizer.json has them too
    settings.write_text(json.dumps(named, indent=2) + "\n")
    return len(tokenizer)


def make_models(out: Path, base_name: str) -> None:
    """Save the base, an adapter whose both halves are random (so that it changes the figures), and both merged."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(SEED)
    base, adapter, full = (out / name for name in ("base", "adapter", "full"))
    config = LlamaConfig(vocab_size=make_tokenizer(base), hidden_size=HIDDEN, intermediate_size=2 * HIDDEN,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         max_position_embeddings=4096, bos_token_id=0, eos_token_id=0, initializer_range=0.2)
    model = LlamaForCausalLM(config)
    model.save_pretrained(str(base))
    tuned = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"],
                                             init_lora_weights=False, task_type="CAUSAL_LM"))
    for name, values in tuned.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(values, std=0.3)
    tuned.peft_config["default"].base_model_name_or_path = base_name
    tuned.save_pretrained(str(adapter), save_embedding_layers=False)
    (adapter / "README.md").unlink(missing_ok=True)
    tuned.merge_and_unload().save_pretrained(str(full))
    make_tokenizer(full)


def make(out: Path, base_name: str, rows: int) -> None:
    """Make all of it; the folder appears under its name only when it is complete."""
    unfinished = out.with_name(f"{out.name}.unfinished-{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        make_models(unfinished, base_name)
        make_rows(unfinished / "rows.jsonl", rows)
        if out.is_dir():
            out.rmdir()
        unfinished.rename(out)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def main() -> int:
    """Read the command line and make the files."""
    parser = argparse.ArgumentParser(description="Make a tiny base model, a LoRA adapter, and a set, for tests.")
    parser.add_argument("out", type=Path, help="folder to make; must not exist, or be empty")
    parser.add_argument("--base-name", default=BASE_NAME, help=f"the base that the adapter names ({BASE_NAME})")
    parser.add_argument("--rows", type=int, default=24, metavar="N", help="conversations of the set (24)")
    options = parser.parse_args()
    out: Path = options.out.absolute()
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        print(f"make-tiny-lora: {out} exists and is not an empty folder", file=sys.stderr)
        return 2
    make(out, options.base_name, options.rows)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"make-tiny-lora: {out} ({size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
