"""The CNN and any torch module: against torch's own autograd and optimisers, and through the contract of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import scarml as scar
from scarml.core.model import Context
from scarml.core.rng import stream
from scarml.core.sequential import Sequential
from scarml.data.classification import Classification
from scarml.errors import ModelError, UsageError
from scarml.models.cnn import CNN, Adam, TorchModel
from scarml.models.cnn.one_thread import one_torch_thread
from scarml.models.cnn.training import n_right
from scarml.testing import check_model

torch = pytest.importorskip("torch")
nn = torch.nn

SMALL = CNN(batch_size=16, batches_per_iteration=2, side=16, n_classes=3)
WAYS = ["by-layer", "by-shard", "slices-by-layer"]


@pytest.fixture(scope="module")
def images() -> Classification:
    """Stripes of three directions, with noise."""
    rng = stream(0, "stripes")
    labels = rng.integers(0, 3, 60)
    y, x = np.mgrid[:16, :16]
    stripes = np.stack([x % 4 < 2, y % 4 < 2, (x + y) % 4 < 2]).astype(float)[labels]
    pixels = 160 * stripes + 80 * rng.random((60, 16, 16))
    return Classification(pixels.reshape(60, 256).astype(np.uint8), labels, n_classes=3)


def trained(model: Any, data: Any, iterations: int = 3, n_shards: int = 4) -> Sequential:
    run = Sequential(model, data, n_shards=n_shards, seed=5)
    for _ in range(iterations):
        run.step()
    return run


def by_torch(model: Any, data: tuple[Any, Any], optimizer: Callable[[Any], Any], n_steps: int) -> Any:
    """The same training in plain torch, in whole batches."""
    module = model.module({"parameters": {"value": Sequential(model, data, seed=5).state["parameters"].value}})
    steps = optimizer(module)
    inputs, targets = model._examples(data)
    order = stream(0, "order of examples", len(inputs)).permutation(len(inputs))
    for k in range(n_steps):
        n_batches = -(-len(inputs) // model.batch_size)
        rows = order[(k % n_batches) * model.batch_size :][: model.batch_size]
        steps.zero_grad()
        loss = model._loss_sum(
            module(torch.from_numpy(model._input(inputs[rows]))), torch.from_numpy(np.asarray(targets[rows]))
        )
        (loss / len(rows)).backward()
        steps.step()
    return np.concatenate([p.detach().numpy().reshape(-1) for p in module.parameters()])


@pytest.mark.parametrize(("blocks", "n_shards"), [("by-layer", 1), ("by-shard", 4)])
def test_the_cnn_is_what_torch_computes(images: Classification, blocks: Any, n_shards: int) -> None:
    model = replace(SMALL, blocks=blocks)
    run = trained(model, images, n_shards=n_shards)
    theirs = by_torch(model, images, partial(adam, lr=1e-3), n_steps=6)
    np.testing.assert_allclose(run.state["parameters"].value, theirs, atol=2e-5)


def adam(module: Any, **settings: Any) -> Any:
    return torch.optim.Adam(module.parameters(), eps=1e-8, betas=(0.9, 0.999), **settings)


@pytest.mark.parametrize("blocks", ["by-layer", "by-shard"])
def test_the_cnn_keeps_the_contract(images: Classification, blocks: Any) -> None:
    check_model(replace(SMALL, blocks=blocks), images, n_shards=2, iterations=2, loss_falls=True)


def test_shards_without_examples_and_weights_alone_keep_the_contract() -> None:
    model = replace(TIED, batch_size=3, batches_per_iteration=1, restores="weights", loss_examples=2)
    check_model(model, tokens(), n_shards=4, iterations=2)


@pytest.mark.parametrize(("blocks", "servers", "workers"), [("by-layer", 1, 1), ("by-layer", 3, 2), ("by-shard", 5, 3)])
def test_the_result_is_the_same_on_any_number_of_nodes(
    images: Classification, blocks: Any, servers: int, workers: int
) -> None:
    model = replace(SMALL, blocks=blocks)
    job = scar.Job(model, images, servers=servers, workers=workers, shards=4, seed=5, stop=scar.Stop(max_iters=3))
    assert job.run().digest == scar.core.sequential.digest(trained(model, images).state)


def test_it_goes_on_when_servers_are_lost(images: Classification) -> None:
    job = scar.Job(
        replace(SMALL, blocks="by-shard"),
        images,
        servers=4,
        shards=2,
        stop=scar.Stop(max_iters=6),
        checkpoint=scar.Checkpoint(fraction="1/2", interval_iters=4),
        kills=[scar.Kill.parse("servers:1/2@4")],
    )
    result = job.run()
    assert result.outcome == "max-iters"
    assert job.unfired_kills == []


def test_sizes_of_the_papers_network() -> None:
    layers = CNN()._cut()
    assert layers.lengths.sum() == 70_108
    assert layers.lengths.max() / layers.lengths.sum() == pytest.approx(0.73, abs=0.005)
    assert len(layers.lengths) == 10
    slices = CNN(blocks="by-shard")._cut()
    assert (len(slices.lengths), len(set(slices.groups))) == (148, 148)
    grouped = CNN(blocks="slices-by-layer")._cut()
    assert (len(grouped.lengths), len(set(grouped.groups))) == (148, 10)
    assert grouped.lengths.tolist() == slices.lengths.tolist()


def test_a_table_counts_moments_as_part_of_a_block(images: Classification) -> None:
    (table,) = SMALL.tables(images)
    assert table.block_bytes.tolist() == (12 * table.block_lengths + 8).tolist()


def test_the_loss_of_some_examples_stands_for_all(images: Classification) -> None:
    run = trained(SMALL, images, iterations=0)
    some = Sequential(replace(SMALL, loss_examples=20), images, n_shards=4, seed=5)
    every_third = Classification(images.features[::3], images.labels[::3], n_classes=3)
    alone = Sequential(SMALL, every_third, n_shards=4, seed=5)
    assert sum(s.n_examples for s in some.shards) == 60
    assert some.loss_sum() == pytest.approx(3 * alone.loss_sum(), rel=1e-12)
    assert some.loss_sum() == pytest.approx(run.loss_sum(), rel=0.05)


def test_a_restored_block_has_its_moments_or_begins_with_fresh_ones(images: Classification) -> None:
    for restores, step in (("all", [4] + [7] * 9), ("weights", [1] + [7] * 9)):
        model = replace(SMALL, restores=restores)
        run, late = trained(model, images, iterations=2), trained(model, images, iterations=3)
        late.state["parameters"].put(run.state["parameters"].take(np.array([0])))
        assert late.state["parameters"].fields["step"].tolist() == [4] + [6] * 9
        late.run_phase(Context(5, 4, 0))
        fields = late.state["parameters"].fields
        assert fields["step"].tolist() == ([5] + [7] * 9 if restores == "all" else step)
        n = late.state["parameters"].lengths[0]
        fresh = np.allclose(fields["v"][:n], 1e-3 / 0.01 * fields["m"][:n].astype(float) ** 2, rtol=1e-4, atol=0)
        assert fresh == (restores == "weights")


# ------------------------------------------------------------------------------------------------ any torch module
class Tied(nn.Module):  # type: ignore[misc]  # torch is not installed where types are checked
    """Embedding and output share their weight; one layer is frozen; a constant buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.frozen = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.out = nn.Linear(4, 6)
        self.out.weight = self.embed.weight
        self.frozen.requires_grad_(False)
        self.register_buffer("shift", torch.full((4,), 0.1))

    def forward(self, x: Any) -> Any:
        return self.out(self.norm(self.frozen(self.embed(x) + self.shift)).mean(dim=1))


def decays_matrices_only(name: str) -> Adam:
    return Adam(learning_rate=0.02, weight_decay=0.1 if name.endswith("weight") and "norm" not in name else 0.0)


def tokens() -> tuple[Any, Any]:
    rng = stream(0, "tokens")
    inputs = rng.integers(0, 6, (30, 3))
    return inputs, inputs[:, 0]


def cross_entropy(outputs: Any, targets: Any) -> Any:
    return nn.functional.cross_entropy(outputs, targets, reduction="sum")


TIED = TorchModel(Tied, cross_entropy, decays_matrices_only, batch_size=8, batches_per_iteration=3, blocks="by-shard")


@pytest.mark.parametrize("blocks", WAYS)
def test_tied_weights_frozen_parameters_and_groups_of_adamw(blocks: Any) -> None:
    def adamw(module: Any) -> Any:
        decayed = [module.embed.weight]
        others = [module.norm.weight, module.norm.bias, module.out.bias]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=0.02)

    model = replace(TIED, blocks=blocks)
    run = trained(model, tokens())
    np.testing.assert_allclose(run.state["parameters"].value, by_torch(model, tokens(), adamw, 9), atol=2e-5)
    runs = trained(model, tokens(), 0), run
    start, end = (model.module({"parameters": r.state["parameters"].fields}) for r in runs)
    assert torch.equal(start.frozen.weight, end.frozen.weight)
    assert end.out.weight is end.embed.weight


def test_a_module_with_tied_and_frozen_parameters_keeps_the_contract() -> None:
    check_model(replace(TIED, blocks="slices-by-layer"), tokens(), n_shards=2, iterations=2, loss_falls=True)


def test_sparse_gradients_are_made_dense() -> None:
    digests = set()
    for sparse in (False, True):
        make = partial(nn.Embedding, 6, 6, sparse=sparse)
        model = TorchModel(make, cross_entropy)
        digests.add(scar.core.sequential.digest(trained(model, (tokens()[1], tokens()[1]), 2).state))
    assert len(digests) == 1


class Changed(nn.Module):  # type: ignore[misc]  # as above
    """A linear layer, and something that is refused."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.linear = nn.Linear(3, 2, dtype=torch.float64 if what == "float64" else torch.float32)
        self.other = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(3, track_running_stats=what == "batch-norm")
        if what == "shared memory":
            self.other.weight.data = self.linear.weight.data

    def forward(self, x: Any) -> Any:
        if self.what == "dropout":
            x = nn.functional.dropout(x, 0.5)
        return self.linear(self.norm(x)) + self.other(x)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("batch-norm", "buffer 'norm.running_mean' changes as the module computes, as BatchNorm's do"),
        ("dropout", "draws random numbers as it computes, as Dropout does"),
        ("float64", "parameter 'linear.weight' is torch.float64 on cpu; expected torch.float32 on cpu"),
        ("shared memory", "'linear.weight' and 'other.weight' share memory without being one Parameter"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_the_reason(what: str, message: str) -> None:
    data = stream(0, "x").random((8, 3)), np.arange(8) % 2
    TorchModel(partial(Changed, ""), cross_entropy).tables(data)  # without it all is well
    with pytest.raises(ModelError, match=message):
        TorchModel(partial(Changed, what), cross_entropy).tables(data)


def test_a_mean_instead_of_a_sum_is_refused() -> None:
    with pytest.raises(ModelError, match=r"for 2 examples and .* for the same twice; expected the sum over"):
        TorchModel(Tied, nn.functional.cross_entropy).tables(tokens())


def test_other_things_that_are_no_module_or_no_data() -> None:
    with pytest.raises(ModelError, match="the module has no parameters; there is nothing to train"):
        TorchModel(nn.ReLU, cross_entropy).tables(tokens())
    with pytest.raises(ModelError, match=r"make_module returned a dict; expected a torch.nn.Module"):
        TorchModel(dict, cross_entropy).tables(tokens())
    with pytest.raises(ModelError, match=r"takes \(inputs, targets\), two arrays, or a Classification; got 7"):
        TIED.tables(7)
    with pytest.raises(ModelError, match="there are 30 inputs and 29 targets"):
        TIED.tables((tokens()[0], tokens()[1][1:]))
    with pytest.raises(ModelError, match="TorchModel needs at least one example"):
        TIED.tables((tokens()[0][:0], tokens()[1][:0]))
    with pytest.raises(UsageError, match="expected parameters with 58 values"):
        TIED.module({"parameters": {"value": np.zeros(3)}})


def test_the_process_keeps_its_own_settings_of_torch(images: Classification) -> None:
    threads = torch.get_num_threads()
    state = torch.random.get_rng_state()
    try:
        torch.set_num_threads(2)
        with one_torch_thread, one_torch_thread:
            assert torch.get_num_threads() == 1
            assert torch.are_deterministic_algorithms_enabled()
        trained(SMALL, images, iterations=1)
        assert torch.get_num_threads() == 2
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch.equal(state, torch.random.get_rng_state())
    finally:
        torch.set_num_threads(threads)


def test_results_do_not_depend_on_the_threads_of_torch(images: Classification) -> None:
    threads = torch.get_num_threads()
    try:
        digests = set()
        for n in (1, 2):
            torch.set_num_threads(n)
            digests.add(scar.core.sequential.digest(trained(SMALL, images).state))
        assert len(digests) == 1
    finally:
        torch.set_num_threads(threads)


def test_data_that_does_not_fit(images: Classification) -> None:
    with pytest.raises(ModelError, match="256 features and 3 classes; expected images of 28 x 28 pixels"):
        CNN().tables(images)
    with pytest.raises(ModelError, match="CNN takes a Classification; got int"):
        CNN().tables(3)


@pytest.mark.parametrize("n_shards", [1, 4])
def test_held_out_metrics_are_those_of_torch(images: Classification, n_shards: int) -> None:
    model = replace(SMALL, loss_examples=7)
    run = trained(model, images, n_shards=n_shards)
    found = run.metrics(model.held_out_shards(images, n_shards))
    module = model.module({"parameters": {"value": run.state["parameters"].value}})
    with torch.no_grad():
        scores = module(torch.from_numpy(images.features.astype(np.float32) / 255))
        labels = torch.from_numpy(images.labels)
        entropy = float(nn.functional.cross_entropy(scores.double(), labels))
    assert found["cross_entropy"] == pytest.approx(entropy, rel=1e-5)
    assert found["accuracy"] == pytest.approx(float((scores.argmax(dim=1) == labels).double().mean()))


def test_a_module_of_ones_own_tells_its_mean_loss_and_if_it_classifies_its_accuracy(images: Classification) -> None:
    classifier = TorchModel(linear_classifier, nn.CrossEntropyLoss(reduction="sum"), batch_size=20, accuracy=True)
    data = images.features.astype(np.float32) / 255, images.labels
    result = scar.Job(classifier, data, held_out=0.25, shards=4, stop=scar.Stop(max_iters=1)).run()
    assert [set(values) for _, values in result.metrics] == [{"loss_mean", "accuracy"}] * 2
    assert [m.name for m in replace(classifier, accuracy=False).metrics] == ["loss_mean"]


def linear_classifier() -> Any:
    return nn.Linear(256, 3)


def test_an_example_with_several_targets_counts_by_those_that_are_right() -> None:
    scores = torch.tensor([[[9.0, 0.0], [0.0, 9.0]], [[9.0, 9.0], [0.0, 0.0]]])  # example, class, place
    assert float(n_right(scores, torch.tensor([[0, 1], [0, 1]]))) == 1.5
