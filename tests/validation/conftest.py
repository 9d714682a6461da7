"""Fixtures of the tests of `llm_judge`: tiny models, and short answers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`base` and `adapter`, not to be changed."""
    from tests.validation.llm_judge_rig import save_adapter, save_model

    root = tmp_path_factory.mktemp("models")
    save_adapter(root / "adapter", save_model(root / "base"))
    return root


@pytest.fixture
def files(originals: Path, tmp_path: Path) -> Path:
    """`base` and `adapter`, a copy that a test may break."""
    return Path(shutil.copytree(originals, tmp_path / "files"))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of six tokens."""
    from automate.validation.modules.llm_judge import generation, schemas

    assert schemas.NEW_TOKENS == 2048
    monkeypatch.setattr(generation, "NEW_TOKENS", 6)
