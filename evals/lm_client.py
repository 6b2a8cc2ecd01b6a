# SPDX-License-Identifier: Apache-2.0
"""lm-eval's clients of a server's API, with what they leave out of a reply."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.models.api_models import JsonChatStr, TemplateAPI
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

from evals.questions import Question

# It would print what the model wrote, which may quote a protected question.
logging.getLogger("lm_eval").setLevel(logging.CRITICAL + 1)


class FaultError(Exception):
    """One request failed; it may be asked again."""


def _replies(outputs: Mapping[str, Any], texts: Sequence[str | None]) -> list[Any]:
    """Each text with why it ended; lm-eval keeps the text alone."""
    if not texts or any(
        choice.get("finish_reason") not in ("stop", "length")
        for choice in outputs["choices"]
    ):
        raise FaultError("aborted")
    tokens = (outputs.get("usage") or {}).get("completion_tokens", 0)
    return [
        (text or "", choice["finish_reason"], tokens)
        for text, choice in zip(texts, outputs["choices"], strict=True)
    ]


class _Completions(LocalCompletionsAPI):
    def parse_generations(self, outputs: Any, **kwargs: Any) -> list[Any]:  # type: ignore[override]
        return _replies(outputs, super().parse_generations(outputs))


class _Chat(LocalChatCompletion):
    def parse_generations(self, outputs: Any, **kwargs: Any) -> list[Any]:  # type: ignore[override]
        texts = [choice["message"]["content"] for choice in outputs["choices"]]
        return _replies(outputs, texts)


def clients(url: str, model: str) -> dict[bool, TemplateAPI]:
    """lm-eval's clients by whether they chat; neither loads a tokenizer."""
    common = {
        "model": model,
        "tokenizer_backend": "None",
        "tokenized_requests": False,
        # A key of the user's environment is not for this server.
        "header": {"Authorization": "Bearer none"},
    }
    return {
        False: _Completions(base_url=f"{url}/v1/completions", **common),
        True: _Chat(base_url=f"{url}/v1/chat/completions", **common),
    }


def message(question: Question) -> Any:
    """The question as those clients take it."""
    return JsonChatStr(question.messages()) if question.chat else question.prompt
