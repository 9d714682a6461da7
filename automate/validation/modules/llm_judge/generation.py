"""Answers of a loaded model: the tokenizer's chat template, sampling without a seed, in batches of the set's order.

Never cuts a conversation to `context_length`: the current client doesn't either."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from automate.validation.inner import symptoms, words
from automate.validation.modules.base import InvalidConfigValueException, RecoverableException
from automate.validation.modules.llm_judge.dataset import Item
from automate.validation.modules.llm_judge.loading import Loaded
from automate.validation.modules.llm_judge.schemas import NEW_TOKENS, TOP_K, TOP_P


class Writer:
    """Writes answers. `temperature` of the sampling; `batch` conversations at once, padded on the left."""

    def __init__(self, loaded: Loaded, *, temperature: float, batch: int, say: Callable[[str], None]) -> None:
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.temperature, self.batch, self._say = temperature, batch, say
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token

    def answers(self, items: Sequence[Item]) -> list[str]:
        """One answer an item, stripped, special tokens left out. Raises RecoverableException: what can't be generated
        is never scored; InvalidConfigValueException where the chat template can't take a row."""
        prompts = [self._prompt(number, item) for number, item in enumerate(items, 1)]
        found: list[str] = []
        for start in range(0, len(prompts), self.batch):
            found += self._batch(prompts[start:start + self.batch])
            self._say(f"generated {len(found)}/{len(prompts)}")
        return found

    def _prompt(self, number: int, item: Item) -> str:
        """A conversation as text. The client makes no score where this fails, so neither do we: a person decides."""
        try:
            text = self.tokenizer.apply_chat_template(
                list(item.messages), tools=_tools(item.tools), tokenize=False, add_generation_prompt=True,
                enable_thinking=False)
        except Exception as error:
            raise InvalidConfigValueException(
                f"the chat template can't take conversation {number}: {type(error).__name__}: {words.of(error, 300)}",
                cause="chat-template") from error
        if not isinstance(text, str) or not text.strip():
            raise InvalidConfigValueException(f"the chat template makes nothing of conversation {number}",
                                              cause="chat-template")
        return text

    def _batch(self, prompts: list[str]) -> list[str]:
        import torch

        try:
            inputs = self.tokenizer(prompts, return_tensors="pt", add_special_tokens=True, padding=len(prompts) > 1)
            inputs = inputs.to(self.model.device)
            eos = self.tokenizer.eos_token_id
            with torch.no_grad():
                out = self.model.generate(**inputs, max_new_tokens=NEW_TOKENS, temperature=self.temperature,
                                          do_sample=True, top_p=TOP_P, top_k=TOP_K, pad_token_id=eos, eos_token_id=eos)
            begin = inputs["input_ids"].shape[1]
            return [self.tokenizer.decode(one[begin:], skip_special_tokens=True).strip() for one in out]
        except Exception as error:
            raise RecoverableException(f"generating failed: {type(error).__name__}: {words.of(error, 300)}",
                                       cause=symptoms.machine(error) or "generation") from error


def _tools(tools: Any) -> Any:
    """Tools as the template takes them: a text that is JSON is read, any other stays as it is."""
    if isinstance(tools, str):
        try:
            return json.loads(tools)
        except (ValueError, RecursionError):
            return tools
    return tools
