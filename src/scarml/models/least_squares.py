"""Many small ridge regressions: the heart of alternating least squares.

For each row, with G the factors of what it is connected to (n × f), b the targets (n) and λ > 0, the solution

    x = (GᵀG + λI)⁻¹ Gᵀb = Gᵀ (GGᵀ + λI)⁻¹ b

is found by a Cholesky decomposition, on the left side where n ≥ f and on the right where n < f. Most rows of a rating
matrix are short (half of MovieLens's movies have at most three ratings), so the right side saves most of the work.

Everything is in float32, as in `implicit`: λ bounds the condition number and Cholesky is backward stable. The bulk of
the work are matrix products, which numba hands to BLAS, with one thread so that the result does not depend on threads.
"""

from __future__ import annotations

import numba
import numpy as np

from scarml.core.block import Array, Ids
from scarml.models.blas import single_threaded_blas

__all__ = ["solve_rows", "solve_rows_reference"]

_SHORT = 8  # a product of so few rows is over before BLAS has begun


def solve_rows(factors: Array, starts: Ids, index: Ids, targets: Array, regularization: float) -> Array:
    """Solve one ridge regression for each row.

    Args:
        factors: what rows are connected to, float32, shape (n_others, f).
        starts: row i has the entries starts[i] … starts[i + 1] − 1, shape (n_rows + 1,).
        index: which of the others each entry is connected to, int64, shape (n_entries,).
        targets: float32, shape (n_entries,).
        regularization: λ, above 0; where it is lost in rounding, the solution is not finite.

    Returns:
        The solutions, float32, shape (n_rows, f); zero for a row without entries.
    """
    out = np.zeros((len(starts) - 1, factors.shape[1]), np.float32)
    longest = int((starts[1:] - starts[:-1]).max(initial=0))
    factors, starts, index, targets = map(_read_only, (factors, starts, index, targets))
    with single_threaded_blas:
        _solve_rows(factors, starts, index, targets, np.float32(regularization), longest, out)
    return out


def solve_rows_reference(factors: Array, starts: Ids, index: Ids, targets: Array, regularization: float) -> Array:
    """The same as `solve_rows`, row by row from the normal equations, in float64."""
    f = factors.shape[1]
    out = np.zeros((len(starts) - 1, f))
    for i in range(len(out)):
        entries = slice(starts[i], starts[i + 1])
        g = factors[index[entries]].astype(np.float64)
        out[i] = np.linalg.solve(g.T @ g + regularization * np.eye(f), g.T @ targets[entries].astype(np.float64))
    return out


def _read_only(a: Array) -> Array:
    """A view: with inputs that are always read-only the kernel is compiled once, which takes seconds, and not twice."""
    view = a.view()
    view.flags.writeable = False
    return view


@numba.njit(nogil=True, cache=True)
def _solve_rows(
    factors: Array, starts: Ids, index: Ids, targets: Array, regularization: np.float32, longest: int, out: Array
) -> None:
    f = factors.shape[1]
    gathered = np.empty((longest, f), np.float32)
    memory = np.empty(f * f, np.float32)
    solution = np.empty(f, np.float32)
    for row in range(len(starts) - 1):
        begin = starts[row]
        n = starts[row + 1] - begin
        if n == 0:
            continue
        g = gathered[:n]
        for k in range(n):
            _copy(factors[index[begin + k]], g[k])
        size = min(n, f)
        gram = memory[: size * size].reshape(size, size)
        x = solution[:size]
        if n >= f:
            np.dot(g.T, g, gram)
            for j in range(f):
                x[j] = 0
            _add_combination(g, targets[begin : begin + n], x)
        else:
            _products_of_rows(g, gram)
            _copy(targets[begin : begin + n], x)
        for i in range(size):
            gram[i, i] += regularization
        _solve(gram, x)
        if n >= f:
            _copy(x, out[row])
        else:
            _add_combination(g, x, out[row])


@numba.njit(nogil=True, cache=True)
def _copy(source: Array, target: Array) -> None:  # an assignment of slices takes seconds to compile
    for j in range(source.shape[0]):
        target[j] = source[j]


@numba.njit(nogil=True, cache=True)
def _add_combination(rows: Array, weights: Array, out: Array) -> None:
    """Add Σ weights[k] · rows[k] to out."""
    for k in range(rows.shape[0]):
        w = weights[k]
        source = rows[k]
        for j in range(out.shape[0]):
            out[j] += w * source[j]


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _products_of_rows(g: Array, out: Array) -> None:
    """At least the lower triangle of ggᵀ."""
    if g.shape[0] > _SHORT:
        np.dot(g, g.T, out)
        return
    for i in range(g.shape[0]):
        for j in range(i + 1):
            total = np.float32(0)
            for k in range(g.shape[1]):
                total += g[i, k] * g[j, k]
            out[i, j] = total


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _solve(a: Array, b: Array) -> None:
    """Overwrite b with A⁻¹b, A given by its lower triangle, which becomes the Cholesky factor C of A = CCᵀ.

    The diagonal of C is stored inverted. Four columns at a time share the loads of the row.
    """
    for i in range(b.shape[0]):
        row = a[i]
        whole = i - i % 4
        for j in range(0, whole, 4):
            _four_columns(a, row, j)
        for j in range(whole, i):
            row[j] = (row[j] - _dot(row, a[j], j)) * a[j, j]
        pivot = np.float32(1) / np.sqrt(row[i] - _dot(row, row, i))
        b[i] = (b[i] - _dot(row, b, i)) * pivot
        row[i] = pivot
    for i in range(b.shape[0] - 1, -1, -1):
        b[i] *= a[i, i]
        x = b[i]
        row = a[i]
        for k in range(i):
            b[k] -= x * row[k]


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _dot(x: Array, y: Array, n: int) -> np.float32:
    total = np.float32(0)
    for k in range(n):
        total += x[k] * y[k]
    return total


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _four_columns(a: Array, row: Array, j: int) -> None:
    """Columns j … j + 3 of one row of the Cholesky factor, from those before them."""
    r0, r1, r2, r3 = a[j], a[j + 1], a[j + 2], a[j + 3]
    s0 = s1 = s2 = s3 = np.float32(0)
    for k in range(j):
        x = row[k]
        s0 += x * r0[k]
        s1 += x * r1[k]
        s2 += x * r2[k]
        s3 += x * r3[k]
    y0 = (row[j] - s0) * r0[j]
    y1 = (row[j + 1] - s1 - y0 * r1[j]) * r1[j + 1]
    y2 = (row[j + 2] - s2 - y0 * r2[j] - y1 * r2[j + 1]) * r2[j + 2]
    y3 = (row[j + 3] - s3 - y0 * r3[j] - y1 * r3[j + 1] - y2 * r3[j + 2]) * r3[j + 3]
    row[j], row[j + 1], row[j + 2], row[j + 3] = y0, y1, y2, y3
