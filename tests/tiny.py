"""Tiny models and a tokenizer for tests: offline, made in milliseconds, the same every time."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

CHATML = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
_CORPUS = (
    "Answer the question. Think first, then search or answer: <answer> Paris </answer>.",
    "the capital of France is Paris and the capital of Italy is Rome",
    "<memory> what is known so far </memory> user assistant system tool query search",
)


def tiny_tokenizer(template: str = CHATML) -> PreTrainedTokenizerFast:
    """A byte-level BPE of about 400 tokens with a ChatML template.

    Special: `<|endoftext|>`, `<|im_start|>`, `<|im_end|>` (the end token); added and not
    special, as in Qwen: `<tool_call>`, `</tool_call>`, `<think>`, `</think>`.
    """
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_backend()),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    tokenizer.chat_template = template
    return tokenizer


def tiny_model(kind: str = "qwen2", seed: int = 0, **config: Any) -> Any:
    """A random model of two layers for `tiny_tokenizer`, with grouped heads, in float32 and evaluation mode.

    Weights are drawn wide (0.15): narrower ones give nearly uniform logits, which hide bugs.
    `kind` is "qwen2", "qwen3" or "llama"; `config` overrides fields of its configuration.
    """
    size = len(tiny_tokenizer())
    options: dict[str, Any] = {
        "vocab_size": size,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "initializer_range": 0.15,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tiny_tokenizer().eos_token_id,
        "pad_token_id": tiny_tokenizer().pad_token_id,
        **({"head_dim": 8} if kind == "qwen3" else {}),
        **config,
    }
    configs = {"qwen2": Qwen2Config, "qwen3": Qwen3Config, "llama": LlamaConfig}
    classes = {"qwen2": Qwen2ForCausalLM, "qwen3": Qwen3ForCausalLM, "llama": LlamaForCausalLM}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return classes[kind](configs[kind](**options)).eval()


@cache
def _backend() -> str:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_CORPUS, trainer)
    backend.add_tokens(
        [
            AddedToken(text, special=False, normalized=False)
            for text in ("<tool_call>", "</tool_call>", "<think>", "</think>")
        ]
    )
    text: str = backend.to_str()
    return text
