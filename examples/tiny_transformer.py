"""A transformer of one's own on the parameter server; half of the servers are lost on the way.

    python -m examples.tiny_transformer

Each sequence is 0, d, 2d, 3d … modulo 16 from a random start. To continue one, the network must find d: look two
numbers back and subtract. It needs PyTorch: pip install 'scarml[cnn]'.
"""

import numpy as np
import torch
from torch import nn

import scarml as scar

N_NUMBERS, LENGTH, WIDTH = 16, 8, 32


class Transformer(nn.Module):
    """One causal layer of attention; embedding and output share their weight."""

    def __init__(self):
        super().__init__()
        self.number = nn.Embedding(N_NUMBERS, WIDTH)
        self.place = nn.Embedding(LENGTH, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(WIDTH, N_NUMBERS)
        nn.init.normal_(self.number.weight, std=WIDTH**-0.5)
        self.out.weight = self.number.weight
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, numbers):
        x = self.number(numbers) + self.place(torch.arange(LENGTH))
        return self.out(self.layer(x, src_mask=self.mask, is_causal=True))


def loss_sum(outputs, targets):
    """From the third number on: before that d is not known."""
    return nn.functional.cross_entropy(outputs[:, 1:].flatten(0, 1), targets[:, 1:].flatten(), reduction="sum")


def adam(parameter):
    """AdamW: only matrices decay."""
    return scar.Adam(3e-3, weight_decay=0.01 if parameter.endswith("weight") and "norm" not in parameter else 0.0)


def sequences(n=512):
    """Inputs, and the same numbers one place on."""
    rng = np.random.default_rng(0)
    start, step = rng.integers(0, N_NUMBERS, (2, n, 1))
    numbers = (start + step * np.arange(LENGTH + 1)) % N_NUMBERS
    return numbers[:, :-1], numbers[:, 1:]


def train(iterations, **settings):
    model = scar.TorchModel(Transformer, loss_sum, adam, batch_size=64, batches_per_iteration=8, blocks="by-shard")
    return scar.Job(
        model,
        sequences(),
        servers=4,
        shards=2,
        stop=scar.Stop(max_iters=iterations),
        checkpoint=scar.Checkpoint(budget_in="bytes", rank_by="distance-per-byte"),
        **settings,
    ).run()


if __name__ == "__main__":
    result = train(40, kills=[scar.Kill.parse("servers:1/2@20")])
    for iteration, loss in result.losses:
        print(f"iteration {iteration:2}: {loss / result.n_examples:.3f} a sequence")
