# SPDX-License-Identifier: Apache-2.0
"""Makes a tiny random Qwen3.5-MoE: the layers of the real one, small enough for a CPU.

    python tiny_moe.py FOLDER DOCS

Three of its four layers are GDN layers with heads of 128, each layer has routed and
shared experts with a gate, and there is a layer for MTP. The tokenizer is a BPE
trained on the text files below DOCS. Weights and tokenizer follow from SEED alone.
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import ByteLevelBPETokenizer

SEED = 20261130
TOKENS = 10240
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Wide enough that greedy choices stand apart by more than bf16 rounds away.
SPREAD = 0.08


def tokenizer(docs: Path, folder: Path) -> int:
    """Trains the tokenizer and saves it; returns the size of its vocabulary.

    Raises:
        SystemExit: The text is too little for it.
    """
    texts = sorted(docs.rglob("*.md"))
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        (path.read_text(encoding="utf-8", errors="replace") for path in texts),
        vocab_size=TOKENS,
        special_tokens=SPECIAL,
        show_progress=False,
    )
    found = bpe.get_vocab_size()
    if found < TOKENS:
        sys.exit(f"{docs}: text for {found} tokens only, {TOKENS} are needed")
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer,
        eos_token=SPECIAL[0],
        pad_token=SPECIAL[0],
        additional_special_tokens=SPECIAL[1:],
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return found


def configuration(layers: int, vocabulary: int) -> transformers.PretrainedConfig:
    """The model's shape; one layer alone is one of full attention, as MTP's is."""
    kinds = ["linear_attention"] * 3 + ["full_attention"]
    return transformers.Qwen3_5MoeTextConfig(
        vocab_size=vocabulary,
        hidden_size=256,
        num_hidden_layers=layers,
        layer_types=kinds[-layers:],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        moe_intermediate_size=64,
        shared_expert_intermediate_size=64,
        num_experts=8,
        num_experts_per_tok=2,
        initializer_range=SPREAD,
        max_position_embeddings=8192,
        eos_token_id=0,
        pad_token_id=0,
        dtype="bfloat16",
    )


def weights(vocabulary: int) -> dict[str, torch.Tensor]:
    """The model's weights and those of its MTP layer, as a checkpoint names them."""
    torch.manual_seed(SEED)
    whole = transformers.Qwen3_5MoeForCausalLM(configuration(4, vocabulary))
    drafter = transformers.Qwen3_5MoeForCausalLM(configuration(1, vocabulary))
    state = dict(whole.state_dict())
    for name, tensor in drafter.state_dict().items():
        if name.startswith("model.layers.0."):
            state[name.replace("model.", "mtp.", 1)] = tensor
    hidden = whole.config.hidden_size
    for name in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"):
        state[f"mtp.{name}.weight"] = torch.zeros(hidden)
    state["mtp.fc.weight"] = torch.randn(hidden, 2 * hidden) * SPREAD
    # Decay and time step stay in float32, as in the real checkpoint.
    return {
        name: tensor.contiguous().to(
            torch.float32 if name.endswith("A_log") else torch.bfloat16
        )
        for name, tensor in state.items()
    }


def main() -> None:
    """Writes the whole model folder."""
    folder, docs = Path(sys.argv[1]), Path(sys.argv[2])
    vocabulary = tokenizer(docs, folder)
    configuration(4, vocabulary).save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "mtp_num_hidden_layers": 1,
    }
    path.write_text(json.dumps(config, indent=1, sort_keys=True), encoding="utf-8")
    save_file(
        weights(vocabulary), folder / "model.safetensors", metadata={"format": "pt"}
    )


if __name__ == "__main__":
    main()
