"""Real vLLM on a CPU: in this process, eager, one model at a time, on tiny models where they do."""

from __future__ import annotations

import gc
import os

# Read when vLLM is first imported, so before anything else is.
os.environ.update(
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    TORCHDYNAMO_DISABLE="1",  # else small functions are compiled, for half a minute, also where vLLM is eager
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",  # each further process would import everything again
    VLLM_LOGGING_LEVEL="WARNING",
    VLLM_NO_USAGE_STATS="1",
)

import pytest
from peft import LoraConfig, get_peft_model
from vllm.distributed import cleanup_dist_env_and_memory

from memsearcher.engines.vllm import VLLMEngine
from tests.tiny import tiny_model, tiny_tokenizer

LENGTH = 1024
ROUNDING = 1e-2
"""How far log-probabilities may be from PyTorch's, in nats: they are by 4e-6 on one CPU, but by 3e-3 on another, where
vLLM's own kernels of float32 are less exact."""
EAGER = {"enforce_eager": True, "distributed_executor_backend": "uni", "max_model_len": LENGTH}


def small_model(seed=0):
    """A tiny Llama with heads of the least size that vLLM has on a CPU."""
    return tiny_model("llama", seed, hidden_size=64, num_attention_heads=2, num_key_value_heads=1)


@pytest.fixture(scope="module", autouse=True)
def one_at_a_time():
    """Free what vLLM holds in this process once a module is through.

    What is left of an engine takes the process's groups down when it is collected, the next engine's too.
    """
    yield
    gc.collect()
    cleanup_dist_env_and_memory()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    small_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def adapter_folder(tmp_path_factory):
    """A LoRA adapter of rank 4 that changes much."""
    folder = tmp_path_factory.mktemp("adapter")
    config = LoraConfig(r=4, lora_alpha=16, target_modules="all-linear", init_lora_weights=False)
    get_peft_model(small_model(), config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapted(model_folder, adapter_folder):
    """The tiny model with its adapter."""
    engine = VLLMEngine.load(model_folder, adapter_folder, batch_size=8, **EAGER)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def engine(adapted):
    """The tiny model alone, in the same vLLM."""
    return VLLMEngine(adapted.llm, adapted.chat, "tiny")
