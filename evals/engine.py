# SPDX-License-Identifier: Apache-2.0
"""The engine with dummy weights at a real model's shape, and its steps timed."""

import argparse
import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from evals import cli, kinds, vllm_tree

DRAFTS = 3
PROMPT_TOKENS, GATE_PROMPT_TOKENS, GATE_TOKENS = 512, 100, 128
SHORT_TOKENS, LONG_TOKENS = 4, 260
PROFILED_SHORT, PROFILED_LONG = 4, 10
MOST_REQUESTS = 32
SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "HF_HUB_OFFLINE": "1",
}
"""One process, so that a profiler sees it all; no network."""


@dataclass(frozen=True)
class Shape:
    """A model's text part.

    Attributes:
        config: Name of its configuration class in transformers.
        architecture: Name of its class in vLLM.
        layers: Layers of the whole model.
        fields: What differs from the class's own values.
    """

    config: str
    architecture: str
    layers: int
    fields: dict[str, Any] = field(default_factory=dict)


SHAPES = {
    # transformers' own values are this model's.
    "35b": Shape("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM", 40),
    # Its GDN layers (16/48 heads, 48 of 64) are what counts here.
    "27b": Shape(
        "Qwen3_5TextConfig",
        "Qwen3_5ForCausalLM",
        64,
        {
            "hidden_size": 5120,
            "intermediate_size": 17408,
            "num_attention_heads": 24,
            "num_key_value_heads": 4,
            "linear_num_value_heads": 48,
        },
    ),
}


def model_folder(shape: Shape, layers: int, state: str) -> Path:
    """A folder that vLLM takes for the model: a configuration and no weights.

    Args:
        shape: Which model.
        layers: How many of its layers.
        state: Dtype of the recurrent state, "float32" or "bfloat16".
    """
    import transformers

    folder = vllm_tree.temporary_folder("dummy-model-")
    made = getattr(transformers, shape.config)(num_hidden_layers=layers, **shape.fields)
    made.save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {
        "architectures": [shape.architecture],
        "dtype": "bfloat16",
        "mtp_num_hidden_layers": 1,
        "mamba_ssm_dtype": state,
    }
    cli.write_json(path, config)
    return folder


def folder_of(args: argparse.Namespace) -> Path:
    """The model that the words of a call ask for."""
    shape = SHAPES[args.shape]
    return model_folder(shape, args.layers or shape.layers, args.state)


def prepare() -> Path:
    """Sets what vLLM reads when it is imported, then finds the tree; returns it."""
    os.environ.update(SETTINGS)
    return vllm_tree.prepare()


def start(folder: Path, requests: Sequence[int], drafts: int) -> Any:
    """The engine, its decode steps in full graphs, nothing compiled but kernels.

    Args:
        folder: The model's.
        requests: Batch sizes that it must capture.
        drafts: Tokens that MTP proposes a step; 0 is no speculation.
    """
    import torch
    from vllm import LLM

    words: dict[str, Any] = {
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "max_model_len": 4096,
        "max_num_seqs": max(MOST_REQUESTS, *requests),
        "gpu_memory_utilization": 0.9,
        "dtype": "bfloat16",
        "enable_prefix_caching": False,
        "disable_log_stats": False,
        "compilation_config": {
            "mode": 0,
            "cudagraph_mode": "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": [number * (1 + drafts) for number in requests],
        },
    }
    if torch.version.hip is None:
        # The others need packages that a bare machine lacks.
        words |= {"gdn_prefill_backend": "triton", "attention_backend": "FLASH_ATTN"}
    if drafts:
        words["speculative_config"] = {
            "method": "mtp",
            "num_speculative_tokens": drafts,
        }
    return LLM(str(folder), **words)


class Run(NamedTuple):
    """One generation.

    Attributes:
        seconds: From the call to its return.
        decode_s: From the last request's first token to the last token of all, by the
            engine's own clock: no prefill is in it.
        steps: Decode steps of a request.
        answer: A digest of all tokens.
    """

    seconds: float
    decode_s: float
    steps: float
    answer: str


@dataclass
class Generator:
    """Generates from fixed random prompts and counts the decode steps.

    Attributes:
        engine: vLLM's.
        prompts: Token ids of each request.
        speculative: Whether steps are counted by drafts, else by tokens.
    """

    engine: Any
    prompts: list[list[int]]
    speculative: bool

    def drafts(self) -> float:
        """Draft steps of all requests so far."""
        return sum(
            metric.value
            for metric in self.engine.get_metrics()
            if metric.name == "vllm:spec_decode_num_drafts"
        )

    def run(self, tokens: int) -> Run:
        """Generates so many tokens a request."""
        from vllm import SamplingParams

        sampling = SamplingParams(
            max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=False
        )
        prompts = [{"prompt_token_ids": ids} for ids in self.prompts]
        before = self.drafts() if self.speculative else 0.0
        start_s = time.perf_counter()
        done = self.engine.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - start_s
        steps = tokens - 1.0
        if self.speculative:
            steps = (self.drafts() - before) / len(self.prompts)
        first_s = max(one.metrics.first_token_ts for one in done)
        last_s = max(one.metrics.last_token_ts for one in done)
        answer = str([list(one.outputs[0].token_ids) for one in done])
        digest = hashlib.sha256(answer.encode()).hexdigest()[:12]
        return Run(seconds, last_s - first_s, steps, digest)

    def step_ms(self, short: int, long: int) -> tuple[float, str]:
        """Milliseconds of a decode step: what a longer run adds, over its steps.

        Returns:
            That, and the digest of the longer run's tokens.
        """
        first, second = self.run(short), self.run(long)
        more = (second.decode_s - first.decode_s) * 1e3
        steps = second.steps - first.steps
        # Nothing was measured then, which whoever takes the figure refuses.
        return (more / steps if steps > 0 else 0.0), second.answer

    def profiled(self, tokens: int) -> tuple[list[kinds.Launch], float]:
        """Kernels of a run under the profiler, and its decode steps."""
        import torch
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            steps = self.run(tokens).steps
            torch.cuda.synchronize()
        launches = [
            kinds.Launch(event.name, event.time_range.elapsed_us())
            for event in profiler.events()
            if event.device_type == DeviceType.CUDA
        ]
        return launches, steps


def prompts(requests: int, tokens: int, seed: int) -> list[list[int]]:
    """Random token ids; ids below 1000 may be special."""
    import random

    source = random.Random(seed)
    return [
        [source.randrange(1000, 100000) for _ in range(tokens)] for _ in range(requests)
    ]
