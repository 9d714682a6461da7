"""Which transformers may give figures, and what the client's version makes of a tokenizer that cleans up spaces.

The golden figures hold under transformers 4.49 only, and are looked at where that is installed."""

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import transformers

from automate.validation.inner.classify import classify
from automate.validation.inner.files import Outcome
from automate.validation.modules.base import InvalidConfigValueException
from automate.validation.modules.lora import loading, rows, templates
from tests.validation.lora_rig import BASE, change, copied, run, tiny


@pytest.mark.parametrize(("version", "accepted"), [
    ("4.49.0", True), ("4.49.1.dev0", True), ("4.48.3", False), ("4.50.0", False), ("4.490.0", False),
    ("5.3.0", False)])
def test_only_the_client_s_version_gives_figures(version: str, accepted: bool, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    tiny()
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: version if name == "transformers" else real(name))
    if accepted:
        loading.need_version(False)
        return
    loading.need_version(True)
    with pytest.raises(InvalidConfigValueException, match=version.replace(".", r"\.")) as caught:
        run(tmp_path, {"any_version": False})
    verdict = classify(caught.value, shipped=True)
    assert (verdict.outcome, verdict.cause) == (Outcome.UNUSABLE, "environment")


def cleaning(tmp_path: Path) -> Any:
    """The tiny tokenizer, told to clean up spaces when it decodes."""
    folder = copied(tmp_path, "base")
    change(folder / "tokenizer_config.json", clean_up_tokenization_spaces=True)
    return loading.load_tokenizer(loading.Source(folder, BASE, submitted=False))


@pytest.mark.skipif(not transformers.__version__.startswith("4.49."), reason="holds under transformers 4.49")
def test_bytes_are_counted_after_spaces_were_cleaned_up(tmp_path: Path) -> None:
    text = "See ( a , b ) . I do n't , well ?"
    cleaned = "See ( a, b ). I don't, well?"
    row = {"conversations": [{"role": "user", "content": "x"}, {"role": "assistant", "content": text}]}
    (tmp_path / "set.jsonl").write_text(json.dumps(row) + "\n")
    tokenizer = cleaning(tmp_path)
    found = rows.read_rows(tmp_path / "set.jsonl", templates.find("yi"), tokenizer, 4096, lambda: "")
    counts = rows.count(found, tokenizer)
    assert counts.bytes == len(f"{cleaned}\n".encode())  # the end of the turn is a special token
    plain = loading.load_tokenizer(loading.Source(tiny() / "base", BASE, submitted=False))
    assert rows.count(found, plain).bytes == len(f"{text}\n".encode())
    assert found[0].ids == tuple(plain.encode("<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n",
                                              add_special_tokens=False)
                                 + plain.encode(f"{text}<|im_end|>\n", add_special_tokens=False))
