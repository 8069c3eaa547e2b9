"""What a checkpoint's budget means for the tables of a model, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from scarml.checkpoint.encoding import stored_block_bytes
from scarml.checkpoint.selection import Checkpoint
from scarml.core.block import Table

__all__ = ["budget_in_words"]


def budget_in_words(checkpoint: Checkpoint, tables: Sequence[Table]) -> str:
    """How much is saved, how often.

    Example:
        >>> from scarml.core.block import Field
        >>> budget_in_words(Checkpoint(), [Table("W", 784, (Field("value", "float32", (10,)),))])
        "priority, 98 of 784 blocks every iteration, 3,920 bytes each time; the whole state's worth every 8 iterations"
        >>> general = Checkpoint.preset("general")
        >>> budget_in_words(general, [Table("W", 784, (Field("value", "float32", (10,)),))]).partition(";")[0]
        'priority, 3,920 bytes of 31,360 (8,624 as they are stored) every iteration'
    """
    saved = [t for t in tables if not t.derived]
    sizes = np.concatenate([t.block_bytes for t in saved])
    n_blocks, size_bytes = len(sizes), int(sizes.sum())
    encodings = checkpoint.encodings(saved)
    stored_bytes = sum(int(stored_block_bytes(t, encodings.get(t.name, {})).sum()) for t in saved)
    r = checkpoint.schedule.fraction
    about = "" if bool((sizes == sizes[0]).all()) and (r * n_blocks).denominator == 1 else "about "
    often = _every(checkpoint.schedule.period_iters)
    stored = f" ({stored_bytes:,} as they are stored)" if stored_bytes < size_bytes else ""
    if r == 1:
        return f"{checkpoint.policy}, all {n_blocks:,} blocks {often}, {stored_bytes:,} bytes each time"
    whole = f"the whole state's worth {_every(Fraction(checkpoint.interval_iters))}"
    if checkpoint.budget_in == "bytes":
        return f"{checkpoint.policy}, {about}{round(r * size_bytes):,} bytes of {size_bytes:,}{stored} {often}; {whole}"
    share = f"{about}{round(r * stored_bytes):,} bytes each time"
    return f"{checkpoint.policy}, {_number(r * n_blocks)} of {n_blocks:,} blocks {often}, {share}; {whole}"


def _every(iterations: Fraction) -> str:
    return "every iteration" if iterations == 1 else f"every {_number(iterations)} iterations"


def _number(value: Fraction) -> str:
    return f"{int(value):,}" if value.denominator == 1 else f"{float(value):,.4g}"
