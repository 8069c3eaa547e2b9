"""Labelled examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scarml.core.block import Array, Ids
from scarml.errors import DataError

__all__ = ["Classification"]


@dataclass(frozen=True, slots=True, eq=False)
class Classification:
    """Examples with one label each.

    Args:
        features: one row an example, shape (n_examples, n_features), any numeric dtype.
        labels: class of each example, 0 … n_classes − 1, an integer dtype, shape (n_examples,).
        n_classes: how many classes there are, with or without examples.
        classes: what the source calls each class, shape (n_classes,); None if they have no names but their numbers.

    Raises:
        DataError: if the shapes do not fit together or a label is out of range.

    Example:
        >>> import numpy as np
        >>> Classification(np.zeros((3, 2), np.float32), np.array([0, 1, 1]), n_classes=2).n_examples
        3
    """

    features: Array
    labels: Array
    n_classes: int
    classes: Array | None = None

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.features.dtype.kind not in "fiub":
            raise DataError(f"features are {self.features.dtype}{self.features.shape}; expected a numeric matrix")
        if self.labels.shape != (len(self.features),) or self.labels.dtype.kind not in "iu":
            raise DataError(
                f"labels are {self.labels.dtype}{self.labels.shape}; expected {len(self.features)} integers, "
                "one for each row of features"
            )
        if self.n_classes < 1:
            raise DataError(f"n_classes is {self.n_classes}; expected at least 1")
        if self.classes is not None and self.classes.shape != (self.n_classes,):
            raise DataError(f"classes have shape {self.classes.shape}; expected n_classes, {self.n_classes} names")
        wrong = np.flatnonzero((self.labels < 0) | (self.labels >= self.n_classes))
        if len(wrong):
            raise DataError(f"example {wrong[0]} has label {self.labels[wrong[0]]}; expected 0 to {self.n_classes - 1}")

    @property
    def n_examples(self) -> int:
        """Rows of `features`."""
        return len(self.features)

    @property
    def n_features(self) -> int:
        """Columns of `features`."""
        return int(self.features.shape[1])

    def take(self, examples: Ids) -> Classification:
        """Some of the examples, in the order given."""
        return Classification(self.features[examples], self.labels[examples], self.n_classes, self.classes)
