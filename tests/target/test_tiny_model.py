"""The tiny model: an ordinary checkpoint, the same each time, made once."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from target.engines import EngineError
from target.tiny_model import BOS, EOS, MARKS, make, tiny_model
from tests.serving import ROOT


@pytest.fixture(scope="module")
def folder(tiny_cache: str) -> Path:
    return tiny_model()


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def test_processes_that_start_together_make_one_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "target", "tiny-model"]
    environment = {"TAILGATE_CACHE": str(tmp_path), "PATH": "", "HOME": str(tmp_path)}
    makers = [
        subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = {maker.communicate(timeout=120)[0].strip() for maker in makers}
    assert [maker.returncode for maker in makers] == [0, 0]
    (made,) = tmp_path.iterdir()  # and nothing half made beside it
    assert printed == {str(made)}


def test_it_is_the_same_each_time(folder: Path, tmp_path: Path) -> None:
    make(tmp_path)
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json"):
        again = sha256((tmp_path / name).read_bytes()).hexdigest()
        assert sha256((folder / name).read_bytes()).hexdigest() == again, name


def test_its_files_are_those_of_any_checkpoint(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert config["hidden_size"] // config["num_attention_heads"] == 64
    assert config["max_position_embeddings"] == 4096
    assert "chat_template" in json.loads((folder / "tokenizer_config.json").read_text())
    assert (folder / "generation_config.json").exists()
    assert (folder / "model.safetensors").stat().st_mode & 0o444 == 0o444


def test_the_prompt_of_a_chat_is_deepseeks(tokenizer: Any) -> None:
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "<think>\nR\n</think>\n\nA"},
        {"role": "user", "content": "P"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == f"{BOS}S<｜User｜>Q<｜Assistant｜>\n\nA{EOS}<｜User｜>P<｜Assistant｜><think>\n"


def test_each_mark_is_one_token_and_text_survives_the_round_trip(tokenizer: Any) -> None:
    for mark in (BOS, EOS, *MARKS):
        assert len(tokenizer.encode(mark, add_special_tokens=False)) == 1, mark
    for text in ("x = 17 * 23\n\n    return 因此，答案是 391。", "🙂 naïve\t\\boxed{5}"):
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text
    assert tokenizer.encode("a")[0] == tokenizer.bos_token_id


def test_the_corpus_makes_a_vocabulary_that_packs_text(tokenizer: Any) -> None:
    text = "How many integers are left? Please reason step by step. 请一步一步推理"
    assert len(tokenizer) > 1000
    assert len(tokenizer.encode(text)) < len(text.encode()) / 2


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TAILGATE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EngineError, match=r"file/cache.*set TAILGATE_CACHE"):
        tiny_model()
