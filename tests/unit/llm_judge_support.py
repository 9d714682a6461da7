"""What the tests of `llm_judge` share: a checkout with sentences made up here, small validation sets, an assignment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from automate.validation.modules.base import Job
from automate.validation.modules.llm_judge.schemas import LLMJudgeInput

PROMPT_FILE = '''
REGISTRY = {}

def register(prompt_id):
    raise SystemExit("nothing of a checkout is run")

@register(prompt_id=1)
def plain(context: str, assistant_response: str):
    evaluation_criteria = """Rate {{1}}.
C={conversation_context}
A={assistant_response}"""
    return evaluation_criteria.format(conversation_context=context, assistant_response=assistant_response)

@register(prompt_id=2)
def referenced(context: str, reference: str, assistant_response: str):
    evaluation_criteria = "Rate2.\\nC={conversation_context}\\nR={reference_response}\\nA={assistant_response}"
    return evaluation_criteria.format(conversation_context=context, reference_response=reference,
                                      assistant_response=assistant_response)

@register(prompt_id=3)
def called(context: str, reference: str, Tools: str, assistant_response: str):
    evaluation_criteria = "Rate3.\\nC={conversation_context}\\nT={tools}\\nR={ref}\\nA={assistant_response}"
    return evaluation_criteria.format(conversation_context=context, ref=reference, tools=Tools,
                                      assistant_response=assistant_response)

template_str = """{% for message in messages %}
{% if message.tool_calls %}
{% for tool in message.tool_calls %}
CALL {{ tool.function.name }}
{% set args = tool.function.arguments %}
{% if args is string %}
{% set args = args | from_json %}
{% endif %}
{% for key, value in args.items() %}
{{ key }}={{ value }}
{% endfor %}
{% endfor %}
{% else %}
TEXT {{ message.content }}
{% endif %}
{% endfor %}"""
'''
INIT_FILE = '''
class Module:
    def _construct(self):
        system_prompt = """Be a just judge of tests."""
        return system_prompt
'''


def make_checkout(root: Path, prompt: str = PROMPT_FILE, init: str = INIT_FILE) -> Path:
    """A folder with the two files that prompts are read from."""
    folder = root / "checkout" / "validator" / "modules" / "llm_judge"
    folder.mkdir(parents=True)
    (folder / "prompt.py").write_text(prompt, encoding="utf-8")
    (folder / "__init__.py").write_text(init, encoding="utf-8")
    return root / "checkout"


def write_set(path: Path, *rows: object) -> Path:
    """A validation set; rows given as text go in as they are."""
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")
    return path


def chat(*turns: str, **more: object) -> dict[str, Any]:
    """A row of turns, user and assistant by turns."""
    roles = ("user", "assistant")
    return {"conversations": [{"role": roles[number % 2], "content": text} for number, text in enumerate(turns)]} | more


def make_input(**eval_args: Any) -> LLMJudgeInput:
    """An assignment with these arguments; two judges, one call each, where nothing else is said."""
    given = {"eval_model_list": ["judge-a", "judge-b"], "eval_require": 1, "prompt_id": 1} | eval_args
    return LLMJudgeInput(hg_repo_id="who/what", revision="main", context_length=64, max_params=10**9,
                         validation_set_url="https://x/y", base_model="qwen3.5", eval_args=given)


def make_partial(*answers: str, reference: str | None = None, tools: Any = None) -> dict[str, Any]:
    """What a first step would leave for these answers, a row each."""
    rows = range(len(answers))
    return {"conversations": [[{"role": "system", "content": None}, {"role": "user", "content": f"question {row}"}]
                              for row in rows],
            "references": [reference for _ in rows], "tools": [tools for _ in rows], "answers": [list(answers)],
            "eval_args": {}}


def make_job(root: Path, **more: Any) -> Job:
    """A job with a checkout of the prompts and a folder of its own."""
    folder = root / "assignment"
    folder.mkdir(exist_ok=True)
    prompts = root / "checkout"
    return Job(scratch=root, folder=folder, judge_prompts=prompts if prompts.exists() else make_checkout(root), **more)
