"""examples/tiny_transformer.py: it learns, and a run that loses servers goes on."""

from __future__ import annotations

import pytest

import scarml as scar

pytest.importorskip("torch")


def test_the_transformer_learns_while_servers_are_lost() -> None:
    from examples.tiny_transformer import train

    calm, broken = train(3), train(3, kills=[scar.Kill.parse("servers:1/2@2")])
    losses = dict(calm.losses)
    assert losses[3] < 0.97 * losses[0]
    assert len(broken.failures) == 2
    assert dict(broken.losses)[1] == losses[1]
    assert broken.losses[-1][1] < losses[0]
