"""Products over few tokens, turned round: the same answers, from layers left as they were."""

import pytest
import torch
from torch import nn

from memsearcher.engines.linear import FEW_TOKENS, thin_products

FEW = FEW_TOKENS[torch.float32]


class Odd(torch.Tensor):
    """Weights of another kind, as quantized ones."""


class Net(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.layer = nn.Linear(6, 5, bias=bias)
        self.device = torch.device("cpu")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 3), (4, 4), (FEW, 1), (FEW + 1, 1), (0, 2)])
def test_the_answer_is_the_layer_s_own(bias, shape):
    net, states = Net(bias), torch.randn(*shape, 6)
    wanted = net.layer(states)
    with torch.inference_mode(), thin_products(net):
        answer = net.layer(states)
    assert answer.shape == wanted.shape
    assert torch.allclose(answer, wanted, atol=1e-6)


def test_products_of_more_tokens_are_turned_round_in_bfloat16(monkeypatch):
    net, states = Net().to(torch.bfloat16), torch.randn(FEW_TOKENS[torch.bfloat16], 6, dtype=torch.bfloat16)
    wanted = net.layer(states)
    monkeypatch.setattr(nn.functional, "linear", None)
    with torch.inference_mode(), thin_products(net):
        answer = net.layer(states)
        with pytest.raises(TypeError):
            net.layer(torch.cat([states, states]))
    assert torch.allclose(answer.float(), wanted.float(), atol=2e-2)


def test_layers_are_left_as_they_were_even_after_an_error():
    net = Net()
    with pytest.raises(RuntimeError), thin_products(net):
        assert "forward" in vars(net.layer)
        net.layer(torch.randn(2, 7))
    assert "forward" not in vars(net.layer)


def test_what_others_replaced_and_other_devices_are_left_alone():
    net = Net()
    net.layer.forward = lambda states: "theirs"
    with thin_products(net):
        assert net.layer(torch.randn(2, 6)) == "theirs"
    assert net.layer(torch.randn(2, 6)) == "theirs"
    odd = Net()
    odd.layer.weight = nn.Parameter(odd.layer.weight.data.as_subclass(Odd))
    with thin_products(odd):
        assert "forward" not in vars(odd.layer)
    other = Net()
    other.device = torch.device("meta")
    with thin_products(other):
        assert "forward" not in vars(other.layer)
