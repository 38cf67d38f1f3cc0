"""An adapter folded into the weights: the same answers, from a model that is then as it was to the bit."""

import peft
import pytest
import torch

from memsearcher.training.adapter import adapted, folded_in
from tests.tiny import tiny_model


def with_adapter(dtype=torch.float32, **options):
    torch.manual_seed(0)
    if options:
        config = peft.LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **options)
        model = peft.get_peft_model(tiny_model().to(dtype), config)
    else:
        model = adapted(tiny_model().to(dtype), None, rank=4, alpha=8)
    for name, each in model.named_parameters():
        if "lora_" in name:
            each.data.normal_(std=0.2)
    return model.eval()


def logits(model):
    with torch.no_grad():
        return model(torch.arange(5, 25)[None]).logits.float()


def state(model):
    return {name: (each.data.clone(), each.requires_grad) for name, each in model.named_parameters()}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_answers_are_the_adapter_s_and_weights_come_back(dtype, tolerance):
    model = with_adapter(dtype)
    before, wanted = state(model), logits(model)
    with model.disable_adapter():
        bare = logits(model)
    places = [each.data_ptr() for each in model.parameters()]
    with folded_in(model):
        found = logits(model)
        changed = [name for name, each in model.named_parameters() if not torch.equal(each, before[name][0])]
    assert (found - wanted).abs().max() < tolerance * wanted.abs().max()
    assert (bare - wanted).abs().max() > 10 * (found - wanted).abs().max()
    assert len(changed) == 2 * 7 and all(name.endswith("base_layer.weight") for name in changed)
    assert torch.equal(logits(model), wanted)
    after = state(model)
    assert all(
        torch.equal(after[name][0], data) and after[name][1] == learns for name, (data, learns) in before.items()
    )
    assert [each.data_ptr() for each in model.parameters()] == places


def test_weights_come_back_after_an_error():
    model = with_adapter()
    wanted = logits(model)
    with pytest.raises(KeyError), folded_in(model):
        raise KeyError
    assert torch.equal(logits(model), wanted)


def test_models_without_an_adapter_are_left_alone():
    model = tiny_model()
    with folded_in(model):
        same = zip(model.parameters(), tiny_model().parameters(), strict=True)
        assert all(torch.equal(each, other) for each, other in same)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings")
@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": "all-linear", "use_dora": True},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"target_modules": ["q_proj", "lm_head"]},
    ],
    ids=["dora", "saved", "embeddings", "tied"],
)
def test_adapters_of_other_kinds_answer_as_they_are(options):
    model = with_adapter(**options)
    wanted = logits(model)
    with folded_in(model):
        assert torch.equal(logits(model), wanted)
