"""The module `llm_judge`: a submitted model answers conversations, and named judges score the answers.

Generates where the GPU is and asks the judges where the network is; see `module.py` for what is scored how."""

from automate.validation.modules.llm_judge.module import LLMJudgeModule

MODULE = LLMJudgeModule
