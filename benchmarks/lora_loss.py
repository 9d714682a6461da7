"""How fast the module `lora` scores 500 conversations of mixed length, next to one row at a time.

python benchmarks/lora_loss.py [--rows N] [--rounds N]; run it by the Python of .venv-validation. Prints one table."""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from automate.validation.modules.lora.rows import Row

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SPEED, SAME = 4.0, 1e-4
SHORTEST, LONGEST = 16, 1024


def conversations(count: int, vocabulary: int, share: float) -> list[Row]:
    """Rows of random tokens: most of 50 to 250, a few of a thousand; `share` of them answers."""
    source = random.Random(5)
    rows = []
    for _ in range(count):
        length = min(LONGEST, max(SHORTEST, int(source.lognormvariate(4.7, 0.8))))
        ids = tuple(source.randrange(3, vocabulary) for _ in range(length))
        turns = source.choice((1, 1, 2, 3))
        answer = source.uniform(0.4 * share, 1.6 * share)
        mask = tuple(int((place * turns / length) % 1 >= 1 - answer) for place in range(length))
        rows.append(Row(ids, (*mask[:-1], 1)))
    return rows


def random_model(vocabulary: int, hidden: int, layers: int) -> PreTrainedModel:
    """A Llama with random weights in float32, with the dropout off."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    config = LlamaConfig(vocab_size=vocabulary, hidden_size=hidden, intermediate_size=3 * hidden,
                         num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
                         max_position_embeddings=2 * LONGEST, tie_word_embeddings=True, initializer_range=0.05)
    return LlamaForCausalLM(config).eval()


def one_by_one(model: PreTrainedModel, rows: Sequence[Row]) -> float:
    """The model's own loss of each row, and their mean."""
    import torch

    losses = []
    with torch.inference_mode():
        for row in rows:
            ids = torch.tensor([row.ids])
            labels = torch.where(torch.tensor([row.mask]) == 1, ids, -100)
            losses.append(float(model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss))
    return math.fsum(losses) / len(losses)


def by_trainer(model: PreTrainedModel, rows: Sequence[Row], out: str) -> float:
    """The mean loss by transformers' Trainer with batches of one row, as the client has it."""
    import torch
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import PrinterCallback

    def collate(batch: list[Row]) -> dict[str, object]:
        ids = torch.tensor([batch[0].ids])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids),
                "labels": torch.where(torch.tensor([batch[0].mask]) == 1, ids, -100)}

    arguments = TrainingArguments(output_dir=out, per_device_eval_batch_size=1, remove_unused_columns=False,
                                  use_cpu=True, report_to=[], disable_tqdm=True)
    trainer = Trainer(model=model, args=arguments, eval_dataset=list(rows), data_collator=collate)
    trainer.remove_callback(PrinterCallback)
    return float(trainer.evaluate()["eval_loss"])


def batched(model: PreTrainedModel, rows: Sequence[Row], budget: int) -> float:
    """The mean loss as the module `lora` computes it."""
    from automate.validation.modules.lora.loss import Place, mean_loss

    return mean_loss(model, rows, Place("cpu", False, 0), budget)


def measure(model: PreTrainedModel, rows: Sequence[Row], budget: int, rounds: int) -> tuple[list[list[str]], bool]:
    """The table's rows, and whether both goals are met; the contestants take turns."""
    with tempfile.TemporaryDirectory() as out:
        ways: dict[str, Callable[[], float]] = {
            "one row at a time, model(...).loss": lambda: one_by_one(model, rows),
            "transformers' Trainer, batches of one": lambda: by_trainer(model, rows, out),
            f"module lora, {budget} tokens a batch": lambda: batched(model, rows, budget),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        figures: dict[str, float] = {}
        for _ in range(rounds):
            for name, way in ways.items():
                began = time.perf_counter()
                figures[name] = way()
                times[name].append(time.perf_counter() - began)
    single, _, ours = ways
    base = statistics.median(times[single])
    table = [[name, f"{statistics.median(taken):.2f} ({min(taken):.2f}..{max(taken):.2f})",
              f"{base / statistics.median(taken):.2f}", f"{figures[name]:.7f}",
              f"{abs(figures[name] / figures[single] - 1):.1e}"] for name, taken in times.items()]
    close = all(abs(figure / figures[single] - 1) <= SAME for figure in figures.values())
    return table, close and base >= SPEED * statistics.median(times[ours])


def main() -> int:
    """Measure and print."""
    import torch

    from automate.validation.modules.lora.loss import budget_for
    from benchmarks.support import busy, print_table

    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("rows", 500), ("rounds", 3), ("vocabulary", 32_000), ("hidden", 64), ("layers", 2),
                        ("budget", 0), ("threads", 1), ("share", 25)):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"({value})")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = conversations(options.rows, options.vocabulary, options.share / 100)
    budget = options.budget or budget_for("cpu", options.vocabulary)
    lengths = sorted(len(row.ids) for row in rows)
    share = sum(row.predicted for row in rows) / sum(lengths)
    model = random_model(options.vocabulary, options.hidden, options.layers)
    print(f"{busy()}; torch {torch.__version__}, {options.threads} thread(s); {len(rows)} rows of {lengths[0]} to "
          f"{lengths[-1]} tokens, median {statistics.median(lengths):g}, {share:.0%} of them targets; Llama of "
          f"{options.layers} layers, {options.hidden} wide, {options.vocabulary} tokens\n")
    table, met = measure(model, rows, budget, options.rounds)
    print_table(["way", "s: median (range)", "times as fast", "mean loss", "off by"], table)
    print(f"\ngoal (at least {SPEED:g} times as fast, within {SAME:g}): {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
