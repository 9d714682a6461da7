"""Tiny real models for the tests of `llm_judge`: a Llama of 16 numbers a token, its words, a LoRA adapter for it; jobs.

Needs torch, transformers, peft and tokenizers; import it after asking for them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import peft
import torch
import transformers

from automate.validation.modules.base import Job
from automate.validation.modules.llm_judge import MODULE
from automate.validation.modules.llm_judge.schemas import LLMJudgeConfig
from tests.unit.llm_judge_support import chat, make_input, make_job, write_set

tokenizers = importlib.import_module("tokenizers")
torch.set_num_threads(1)
BASE = "Qwen/Qwen3.5-0.8B"
TEMPLATE = ("{% if tools %}T{{ tools | length }} {% endif %}{% for message in messages %}{{ message.role }} "
            "{{ message.content or '' }} <eos> {% endfor %}{% if add_generation_prompt %}assistant "
            "{% endif %}{% if enable_thinking is defined and enable_thinking is false %}quiet {% endif %}")
WORDS = ("<unk>", "<eos>", "system", "user", "assistant", "quiet", "T1", *(f"w{number}" for number in range(40)))


def save_tokenizer(folder: Path, template: str | None = TEMPLATE) -> None:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: at for at, word in enumerate(WORDS)}, "<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="<eos>")
    made.chat_template = template
    made.save_pretrained(folder)


def save_model(folder: Path, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                      num_attention_heads=2, max_position_embeddings=4096, eos_token_id=1,
                                      bos_token_id=None, pad_token_id=None)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_adapter(folder: Path, base: Path, name: str = BASE) -> Path:
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    torch.manual_seed(5)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    peft.get_peft_model(model, config).save_pretrained(folder)
    edit(folder / "adapter_config.json", base_model_name_or_path=name)
    return folder


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def full_job(tmp_path: Path, files: Path, **more: Any) -> Job:
    return make_job(tmp_path, data=rows(tmp_path), model=files / "base", **more)


def lora_job(tmp_path: Path, files: Path, **more: Any) -> Job:
    return make_job(tmp_path, data=rows(tmp_path), **({"model": files / "adapter", "base": files / "base"} | more))


def rows(tmp_path: Path) -> Path:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    return write_set(tmp_path / "set.jsonl", chat("w1 w2", "w3"), chat("w4 " * 30, "w5", "w6", "w12", system="w7"),
                     chat("w8", tools=tools), chat("w9", tools=json.dumps(tools)), chat("w10 w11"))


def validate(job: Job, *, batch: int = 1, most: int = 10**9, **eval_args: Any) -> Any:
    module = MODULE(LLMJudgeConfig(gen_batch_size=batch), job=job)
    try:
        return module.validate(make_input(**eval_args).model_copy(update={"max_params": most}), job=job)
    finally:
        module.cleanup()
