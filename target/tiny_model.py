"""The tiny model: a real Qwen2 checkpoint with seeded weights, made on first use.

Its text is noise, its computation is real: an ordinary folder that transformers and vLLM load like
any other. Two things keep the noise in shape, both in the weights and so the same in every server.
Hidden dimension 0 is a large constant, and the rows of the output layer that belong to special
tokens and to bytes that are no whole characters turn it against themselves: an answer holds valid
text only, and ends at max_tokens.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from target.engines import EngineError

CORPUS = Path(__file__).with_name("tiny_corpus.txt")
SEED = 20_250_120
VOCABULARY = 3072
CONTEXT = 4096
BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
MARKS = ("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>")
TEMPERATURE, TOP_P = 0.6, 0.95  # as the real distilled models recommend
SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,  # head_dim 64: what attention kernels are made for
    "num_key_value_heads": 1,
    "max_position_embeddings": CONTEXT,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
# Qwen2's own: words, single digits, punctuation, line ends.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# DeepSeek-R1-Distill's, without its tool calls: earlier reasoning is left out, new one is opened.
CHAT_TEMPLATE = (
    "{% set system = messages | selectattr('role', 'equalto', 'system') | list %}"
    "{{ bos_token }}{% for message in system %}{{ message['content'] }}{% endfor %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}"
    "{% elif message['role'] == 'assistant' %}"
    "{{ '<｜Assistant｜>' + message['content'].split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}"
)


def cache_folder() -> Path:
    """TAILGATE_CACHE, or `tailgate` in the user's cache."""
    if own := os.environ.get("TAILGATE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailgate"


def tiny_model() -> Path:
    """The folder of the checkpoint; made when it is not there, by however many processes at once.

    Raises EngineError where the cache cannot be written.
    """
    recipe = Path(__file__).read_bytes() + CORPUS.read_bytes()
    key = hashlib.sha256(recipe).hexdigest()[:12]  # another recipe is another folder
    folder = cache_folder() / f"tiny-qwen2-{key}"
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    except OSError as error:
        where = f"{error.filename}: {error.strerror}"
        raise EngineError(f"cannot make the tiny model in {where}; set TAILGATE_CACHE") from error
    try:
        make(making)
        making.chmod(0o755)
        try:
            making.rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was first: its folder is as good
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def make(folder: Path) -> None:
    """Write the checkpoint's files."""
    tokenizer = train_tokenizer(CORPUS.read_text().split("\n\n"))
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": EOS,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(config, ensure_ascii=False, indent=2)
    (folder / "tokenizer_config.json").write_text(f"{text}\n")
    make_model(tokenizer).save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)


def train_tokenizer(texts: Iterable[str]) -> Any:
    """A byte-level BPE `tokenizers.Tokenizer` over these texts, with DeepSeek's special tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, trainers
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
    from tokenizers.processors import TemplateProcessing

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = Sequence(
        [
            Split(Regex(SPLIT), behavior="isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS, EOS],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # Not "special", as in the real tokenizer: a decoder shows them.
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in MARKS])
    tokenizer.post_processor = TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return tokenizer


def unspeakable(tokenizer: Any) -> list[int]:
    """Ids of tokens that are special, control characters, or no whole characters by themselves."""
    marks = {tokenizer.token_to_id(mark) for mark in (BOS, EOS, *MARKS)}

    def bad(token: int) -> bool:
        text = tokenizer.decode([token]).replace("\n", "")
        return "\ufffd" in text or not text.isprintable()

    return [i for i in range(tokenizer.get_vocab_size()) if i in marks or bad(i)]


def make_model(tokenizer: Any) -> Any:
    """The model with seeded weights, in bfloat16 as real checkpoints are."""
    import torch
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, logging

    logging.disable_progress_bar()
    bos, eos = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
    ends = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": eos}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=tokenizer.get_vocab_size(), **SHAPE, **ends))
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if "norm" in name:
                weight.fill_(1.0)
            else:
                spread = {"lm_head.weight": 0.12, "model.embed_tokens.weight": 0.5}.get(name, 0.08)
                weight.normal_(0.0, spread, generator=generator)
        model.model.embed_tokens.weight[:, 0] = 8.0
        model.lm_head.weight[:, 0] = 0.0
        model.lm_head.weight[unspeakable(tokenizer), 0] = -8.0
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=TEMPERATURE, top_p=TOP_P, **ends
    )
    return model.to(torch.bfloat16)
