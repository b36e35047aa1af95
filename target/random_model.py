"""The full shape of DeepSeek-R1-Distill-Qwen-1.5B without a download: a folder without weights.

Whoever loads it draws the weights: its speed is real, its text is not. The tokenizer is the tiny
model's, with a word for each further id of the vocabulary, so that any server can show its answers.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from target.tiny_model import cache_folder, tiny_model

RANDOM_NAME = "random/deepseek-r1-distill-qwen-1.5b"
CONTEXT = 32_768
SHAPE = {
    "vocab_size": 151_936,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "rope_theta": 10_000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
# 4-bit weights in groups of 128, as llm-compressor writes them.
W4 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4,
                "type": "int",
                "symmetric": True,
                "strategy": "group",
                "group_size": 128,
            },
            "input_activations": None,
            "output_activations": None,
        }
    },
}


def random_model(layers: int | None = None, w4: bool = False) -> Path:
    """The folder with config.json and the tokenizer; made where it is not."""
    from transformers import Qwen2Config

    tiny = tiny_model()
    name = f"random-1.5b-{layers or 28}-layers{'-w4' if w4 else ''}-{tiny.name}"
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    told = json.loads((tiny / "config.json").read_text())
    ends = {key: told[key] for key in ("bos_token_id", "eos_token_id")}
    shape = {**SHAPE, **({} if layers is None else {"num_hidden_layers": layers})}
    config = Qwen2Config(**shape, **ends, architectures=["Qwen2ForCausalLM"], dtype="bfloat16")
    if w4:
        config.quantization_config = W4
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=cache_folder()))
    try:
        config.save_pretrained(making)
        shutil.copy(tiny / "tokenizer_config.json", making)
        tokenizer = grown(json.loads((tiny / "tokenizer.json").read_text()), SHAPE["vocab_size"])
        (making / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
        making.chmod(0o755)
        os.replace(making, folder)
    except OSError:
        if not folder.is_dir():  # another process was first: its folder is as good
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def grown(tokenizer: dict[str, Any], size: float) -> dict[str, Any]:
    """The tokenizer with words for ids up to `size`; no text is ever encoded to them."""
    known = tokenizer["model"]["vocab"]
    # A token that is added is given the next free id, unless the vocabulary has it.
    known.update({token["content"]: token["id"] for token in tokenizer["added_tokens"]})
    first = max(known.values()) + 1
    known.update({f"\u0120w{number}": number for number in range(first, int(size))})
    return tokenizer
