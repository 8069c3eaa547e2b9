"""SGD and other sublinear algorithms: the bound on the iteration cost, solved for k numerically.

For a strongly convex objective and a step size η_k,

    E‖x(k+1) − x*‖² ≤ (1 − α_k) E‖x(k) − x*‖² + α_k² G²,

with α_k = 2 λ η_k, λ the strong convexity, and G the bound on the norm of stochastic gradients divided by 2 λ (equation
24 of the paper calls it the bound itself). A perturbation adds to the root mean square (Minkowski's inequality):

    D(k+1) = (1 − α_k) (√D(k) + s_k)² + α_k² G²,    s_k² = E‖δ_k‖²,    E‖y(k) − x*‖ ≤ √D(k).

Where the paper is loose: its appendix B.2 carries the recursion over to distances that are *not* squared and adds
α²G² to them; that is no consequence of it. Its a_k ∝ 1/k for α_k ∝ 1/k holds for α_k = 1/(k + 1) only: with α_k = θ/k
the product a_k falls as k^−θ, and for θ > 1 the noise makes D(k) fall as θ²G² / ((θ − 1) k), whatever θ is. So here the
recursion itself is followed, without closed forms.

Source: appendix B.2 of the paper; Nemirovski et al. 2009; Rakhlin, Shamir and Sridharan 2012.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from scarml.errors import UsageError
from scarml.theory.assumptions import checked_distance, checked_norm

__all__ = ["contraction", "harmonic_steps", "sgd_cost_bound", "sgd_distances"]

CHUNK = 1 << 16
_F = NDArray[np.float64]


def harmonic_steps(theta: float, offset: float = 1.0) -> Callable[[_F], _F]:
    """α_k = min(1, θ / (k + offset)), the usual choice for strongly convex objectives.

    Args:
        theta: θ, above 0; above 1 for the distance to fall as 1/√k.
        offset: above 0.

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> harmonic_steps(2.0)(np.arange(4.0)).tolist()
        [1.0, 1.0, 0.6666666666666666, 0.5]
    """
    if not (theta > 0 and offset > 0):
        raise UsageError(f"theta is {theta}, offset is {offset}; expected numbers above 0")
    return lambda k: np.minimum(1.0, theta / (k + offset))


def contraction(alphas: ArrayLike) -> NDArray[np.float64]:
    """a_0 = 1, a_1, …: the products (1 − α_0) ⋯ (1 − α_{k−1}), by which squared distances shrink without noise.

    Args:
        alphas: α_0, α_1, …, between 0 and 1, shape (n,).

    Returns:
        Shape (n + 1,).

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> contraction([0.5, 0.5, 0.2]).tolist()
        [1.0, 0.5, 0.25, 0.2]
    """
    return np.concatenate([[1.0], np.cumprod(1 - _checked_alphas(alphas))])


def sgd_distances(
    alphas: ArrayLike, x0_distance: float, gradient_norm: float, perturbations: ArrayLike = 0.0
) -> NDArray[np.float64]:
    """√D(k): the bound on the root mean square distance of y(k), before its perturbation, for k = 0, …, n.

    Args:
        alphas: α_0, …, α_{n−1}, between 0 and 1, shape (n,).
        x0_distance: ‖x(0) − x*‖, above 0.
        gradient_norm: G, at least 0, as the module's text defines it.
        perturbations: s_k, at least 0, shape (n,) or one for all.

    Returns:
        Shape (n + 1,).

    Raises:
        UsageError: if an argument is out of range.

    Example:
        >>> sgd_distances([0.75, 0.75], 4.0, 0.0, perturbations=[0.0, 2.0]).tolist()
        [4.0, 2.0, 2.0]
    """
    alpha = _checked_alphas(alphas)
    sizes = np.broadcast_to(checked_norm(perturbations, "perturbations"), alpha.shape)
    squares = np.empty(len(alpha) + 1)
    squares[0] = float(checked_distance(x0_distance)) ** 2
    _follow(alpha, sizes, float(checked_norm(gradient_norm, "gradient_norm")) ** 2, squares)
    return np.asarray(np.sqrt(squares))


def sgd_cost_bound(
    steps: Callable[[_F], _F],
    norms: ArrayLike,
    at_iters: ArrayLike,
    *,
    eps: float,
    x0_distance: float,
    gradient_norm: float,
    max_iters: int = 100_000_000,
) -> float:
    """The bound on the iteration cost of perturbations of SGD.

    The recursion is followed with and without the perturbations until it stays below ε, and the difference is taken.
    Between two iterations D is taken to fall exponentially, so that for a constant α, without noise, this is Theorem
    3.2 with c = √(1 − α). As there, it bounds the cost if the unperturbed sequence is no faster than its bound.

    Args:
        steps: gives α_k for an array of k; between 0 and 1, never growing. For example `harmonic_steps`.
        norms: root mean squares of ‖δ_l‖, at least 0, shape (n,).
        at_iters: l of each, whole numbers of at least 0, shape (n,).
        eps: ε, the distance at which training is done, below ``x0_distance``.
        x0_distance: ‖x(0) − x*‖, above 0.
        gradient_norm: G, at least 0, as the module's text defines it.
        max_iters: where the search is given up.

    Raises:
        UsageError: ε is not reached within ``max_iters``, or an assumption is broken.

    Example:
        >>> options = dict(eps=0.1, x0_distance=10.0, gradient_norm=1.0)
        >>> cost = sgd_cost_bound(harmonic_steps(2.0), [5.0], [20], **options)
        >>> later = sgd_cost_bound(harmonic_steps(2.0), [5.0], [200], **options)
        >>> 0 < cost < later
        True
    """
    sizes, at = checked_norm(np.atleast_1d(norms), "norms"), np.atleast_1d(at_iters)
    if at.shape != sizes.shape or at.ndim != 1 or (at.size and (at.dtype.kind not in "iu" or (at < 0).any())):
        raise UsageError("norms and at_iters must be of one length, at_iters whole numbers of at least 0")
    start = float(checked_distance(x0_distance))
    if not 0 < eps < start:
        raise UsageError(f"eps is {eps:.6g}; expected a number above 0 and below x0_distance, {start:.6g}")
    search = _Search(steps, start**2, float(checked_norm(gradient_norm, "gradient_norm")) ** 2, eps**2, max_iters)
    perturbed = search.crossing(_by_iteration(at, sizes))
    return perturbed - search.crossing({})


def _by_iteration(at: NDArray[Any], sizes: _F) -> dict[int, float]:
    """Perturbations by iteration; those of one iteration add up (Minkowski)."""
    found: dict[int, float] = {}
    for k, size in zip(at.tolist(), sizes.tolist(), strict=True):
        found[k] = found.get(k, 0.0) + size
    return found


@dataclass(frozen=True, slots=True)
class _Search:
    """For the iteration at which D, of which ``start`` is the first and ``goal`` is ε², is small enough."""

    steps: Callable[[_F], _F]
    start: float
    noise: float
    goal: float
    max_iters: int

    def crossing(self, perturbations: dict[int, float]) -> float:
        """Where D comes below ε² for good, between iterations.

        Once D(k) < ε² and α_k G² ≤ ε², it stays so without perturbations, as the α do not grow: D(k+1) is a mean of
        D(k) and α_k G², weighted by 1 − α_k and α_k.
        """
        last_perturbed, first, squares, smallest = max(perturbations, default=-1), 0, self.start, 1.0
        last_above, crossing = 0, 0.0
        while first < self.max_iters:
            alpha = self._alphas(first, smallest)
            smallest = float(alpha[-1])
            sizes = np.zeros(CHUNK)
            for k, size in perturbations.items():
                if first <= k < first + CHUNK:
                    sizes[k - first] = size
            path = np.empty(CHUNK + 1)
            path[0] = squares
            _follow(alpha, sizes, self.noise, path)
            above = np.flatnonzero(path[:-1] >= self.goal)
            if len(above):
                last_above = first + int(above[-1])
                high, low = path[above[-1]], path[above[-1] + 1]
                crossing = last_above + (math.log(high / self.goal) / math.log(high / low) if low < high else 1.0)
            settled = (path[:-1] < self.goal) & (alpha * self.noise <= self.goal)
            settled &= np.arange(first, first + CHUNK) > max(last_perturbed, last_above)
            if settled.any():
                return crossing
            first, squares = first + CHUNK, float(path[-1])
        raise UsageError(
            f"the distance is {math.sqrt(squares):.4g} after {first:,} iterations, not below eps = "
            f"{math.sqrt(self.goal):.4g} for good: the sum of the steps may be finite, or they may be too large for "
            "eps; a larger max_iters looks further"
        )

    def _alphas(self, first: int, smallest: float) -> _F:
        alpha = _checked_alphas(self.steps(np.arange(first, first + CHUNK, dtype=np.float64)))
        if alpha.shape != (CHUNK,) or alpha[0] > smallest or (np.diff(alpha) > 0).any():
            raise UsageError("steps must give one α for each k, and they must never grow")
        return alpha


def _checked_alphas(alphas: ArrayLike) -> _F:
    alpha = np.asarray(alphas, np.float64)
    if alpha.ndim != 1 or not ((alpha >= 0) & (alpha <= 1)).all():
        raise UsageError("α_k must be between 0 and 1, one for each k: 1 − α_k is what is left of the squared distance")
    return alpha


@numba.njit(nogil=True, cache=True)
def _follow(alpha: _F, sizes: _F, noise: float, squares: _F) -> None:
    for k in range(alpha.shape[0]):
        d = squares[k] if sizes[k] == 0 else (np.sqrt(squares[k]) + sizes[k]) ** 2
        squares[k + 1] = (1 - alpha[k]) * d + alpha[k] ** 2 * noise
