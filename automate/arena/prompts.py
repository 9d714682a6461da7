"""The judge's prompt for a category: upstream's from the user's checkout, or the project's own.

Never imports the checkout's code: its literals are read from the syntax tree."""

from __future__ import annotations

import ast
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from automate.errors import ConfigError
from automate.resources import configs_dir
from automate.yamlfile import YamlFile, read_yaml

FIELDS = frozenset({"QUESTION", "ANSWER_A", "ANSWER_B"})
NOT_UPSTREAM = "not Arena-Hard's prompt"
Message = dict[str, str]


@dataclass(frozen=True)
class Prompts:
    """The user template, the system prompt of each category, and whose words they are.

    `baselines` are upstream's own by category, where the checkout's judge_utils.py was read.
    """

    template: str
    system: Mapping[str, str]
    upstream: bool
    source: str
    baselines: Mapping[str, str]

    @property
    def notice(self) -> str | None:
        """What every table must say of scores made with these prompts, if anything."""
        return None if self.upstream else NOT_UPSTREAM

    def render(self, category: str, question: str, answer_a: str, answer_b: str) -> list[Message]:
        """The two messages that the judge gets, as upstream builds them. Raises ConfigError."""
        system = self.system.get(category)
        if system is None:
            raise ConfigError(f"no judge prompt for the category '{category}'", where=self.source,
                              todo=f"categories with a prompt: {', '.join(sorted(self.system))}")
        user = self.template.format(QUESTION=question, ANSWER_A=answer_a, ANSWER_B=answer_b)
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def template_problems(template: str) -> list[str]:
    """What is wrong with a prompt template; an empty list where it can be used."""
    problems = []
    if "\n" not in template and "\\n" in template:
        problems.append("it holds backslash-n pairs instead of real newlines")
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        return [*problems, f"it is not a format string: {error}"]
    names = {name for _, name, _, _ in parts if name is not None}
    missing, extra = FIELDS - names, names - FIELDS
    if missing:
        problems.append("it lacks the field " + ", ".join(f"{{{name}}}" for name in sorted(missing)))
    if extra:
        problems.append("it has an unknown field " + ", ".join(f"{{{name}}}" for name in sorted(extra)))
    if any(spec or conversion for _, _, spec, conversion in parts):
        problems.append("its fields may not carry a format or conversion")
    return problems


def _literal(node: ast.expr, names: Mapping[str, object]) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Dict):
        return {str(_literal(k, names)): _literal(v, names) for k, v in zip(node.keys, node.values, strict=True) if k}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _literal(node.left, names), _literal(node.right, names)
        return left + right if isinstance(left, str) and isinstance(right, str) else None
    return None


def read_judge_settings(path: Path) -> dict[str, dict[str, str]]:
    """`JUDGE_SETTINGS` of a checkout's utils/judge_utils.py: category -> {baseline, system_prompt}."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"can't be read as Python: {error}", where=str(path)) from error
    names: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = _literal(node.value, names)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            names[node.target.id] = _literal(node.value, names)
    return _check_settings(names.get("JUDGE_SETTINGS"), str(path))


def _check_settings(found: object, where: str) -> dict[str, dict[str, str]]:
    if not isinstance(found, dict) or not found:
        raise ConfigError("no category has a judge prompt written out as plain text", where=where,
                          todo="JUDGE_SETTINGS must be a dict of literals, as upstream's is")
    out = {}
    for category, entry in found.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("system_prompt"), str):
            raise ConfigError(f"the category '{category}' has no system_prompt as plain text", where=where)
        out[str(category)] = {str(k): v for k, v in entry.items() if isinstance(v, str)}
    return out


def _template(file: YamlFile) -> str:
    template = file.value.get("prompt_template")
    where = file.where(("prompt_template",))
    if not isinstance(template, str):
        raise ConfigError("prompt_template is missing or not text", where=where)
    problems = template_problems(template)
    if problems:
        raise ConfigError(f"prompt_template can't be used: {'; '.join(problems)}", where=where,
                          todo="copy the template of upstream's config/arena-hard-v2.0.yaml")
    return template


def load_prompts(bench_settings: Path, judge_utils: Path) -> Prompts:
    """Upstream's prompts where both files of the checkout are there, else the project's own. Raises ConfigError."""
    if bench_settings.is_file() and judge_utils.is_file():
        settings = read_judge_settings(judge_utils)
        return _prompts(_template(read_yaml(bench_settings)), settings, True, str(judge_utils))
    own = read_yaml(configs_dir() / "prompts.yaml")
    template = _template(read_yaml(configs_dir() / "arena-hard-v2.0.yaml"))
    return _prompts(template, _check_settings(own.value, own.path), False, "flock-hpc's own prompts")


def _prompts(template: str, settings: Mapping[str, Mapping[str, str]], upstream: bool, source: str) -> Prompts:
    return Prompts(
        template=template, upstream=upstream, source=source,
        system={category: entry["system_prompt"] for category, entry in settings.items()},
        baselines={category: entry["baseline"] for category, entry in settings.items() if "baseline" in entry},
    )
