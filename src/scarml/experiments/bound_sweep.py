"""Perturbations of known size along one trajectory, what they cost, and what Theorem 3.2 allows them to cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from scarml.core.rng import stream
from scarml.core.sequential import State
from scarml.errors import UsageError
from scarml.experiments.baseline import Baseline, record_baseline
from scarml.experiments.bound_rows import ESTIMATES, SETTINGS, BoundRow
from scarml.experiments.bound_setting import Setting
from scarml.experiments.failure import groups_of, lose_groups
from scarml.experiments.figures import Tell
from scarml.experiments.kept_rows import KeptRows
from scarml.experiments.perturbations import away_from, distance_between, normal, reset
from scarml.experiments.perturbed import Later, Perturbed, run_perturbed
from scarml.experiments.problem import Panel, Trainer, trainer_for
from scarml.experiments.processes import Processes
from scarml.experiments.trajectory import Crossing
from scarml.experiments.trial import LONGEST, Looking
from scarml.theory.convergence_rate import RateEstimate
from scarml.theory.iteration_cost import discounted_sum, perturbation_cost_bound

__all__ = ["BoundSweep"]


def _run(panel: Panel, trial: Perturbed) -> tuple[Crossing, int]:
    return run_perturbed(trainer_for(panel), trial)


class BoundSweep:
    """The trials of settings that share one baseline.

    Args:
        settings: on the same panel, with the same baseline and the same T.
        seed: of the perturbations.
        processes: that trials are spread over.
        trainer: instead of the panel's own, for problems that have no name; they cannot be trained elsewhere.

    Raises:
        UsageError: if the settings do not belong together.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        seed: int = 1,
        processes: Processes = Processes(),  # noqa: B008  # frozen
        trainer: Trainer | None = None,
    ) -> None:
        n_baselines = len({s.baseline_key for s in settings})
        if n_baselines != 1:
            raise UsageError(f"{n_baselines} different baselines in one sweep of {len(settings)} settings; expected 1")
        if trainer is not None and processes.are_elsewhere:
            raise UsageError("a problem without a name can be trained in this process only; give its panel a name")
        self.settings = settings
        self.seed = seed
        self._first = settings[0]
        self._processes = processes
        self.trainer = trainer or trainer_for(self._first.panel)
        self._baseline: Baseline | None = None
        self._control: Crossing | None = None
        self._rates: dict[int | None, RateEstimate] = {}

    @property
    def baseline(self) -> Baseline:
        """Training without perturbations; recorded when it is first needed."""
        if self._baseline is None:
            self._baseline = record_baseline(self.trainer, self._first.baseline_iters, self._first.reference_iters)
            self.trainer = self.trainer.with_criterion(self._baseline.criterion)
        return self._baseline

    def run(self, folder: Path, n_trials: int | None = None, tell: Tell = lambda *_: None) -> list[BoundRow]:
        """Run what is not there yet.

        Args:
            folder: gets a file for each setting.
            n_trials: instead of what the settings say; controls keep their number.
            tell: is told of progress.

        Returns:
            The rows of all settings, controls first.
        """
        tell(f"{self._first.panel.name}: baseline", 0, 1)
        _ = self.baseline
        tell(f"{self._first.panel.name}: baseline", 1, 1)
        rows: list[BoundRow] = []
        if self._first.controls:
            none = replace(self._first, name=f"{self._first.name}-controls", kind="none", largest=0.0)
            controls = self._cell(none, folder, self._first.controls, tell)
            self._control = Crossing(
                float(np.mean([r.control + r.cost for r in controls])),
                float(np.mean([r.control_whole + r.cost_whole for r in controls])),
            )
            rows += controls
        for setting in self.settings:
            rows += self._cell(setting, folder, setting.n_trials if n_trials is None else n_trials, tell)
        return rows

    def _cell(self, setting: Setting, folder: Path, n_trials: int, tell: Tell) -> list[BoundRow]:
        kept = KeptRows(folder / setting.file_name, BoundRow, self._columns(setting))
        missing = kept.missing(n_trials)
        tell(setting.name, n_trials - len(missing), n_trials)
        given: dict[int, Perturbed] = {}
        for done, (number, outcome) in enumerate(self._outcomes(setting, missing, given), start=1):
            kept.add(self._row(setting, missing[number], given.pop(number), outcome))
            tell(setting.name, n_trials - len(missing) + done, n_trials)
        kept.revise(partial(self._under_the_bound, setting))
        return kept.finish(n_trials)

    def _outcomes(
        self, setting: Setting, missing: Sequence[int], given: dict[int, Perturbed]
    ) -> Iterator[tuple[int, tuple[Crossing, int]]]:
        """As they are done; trials are made when their turn comes, since states may be large."""

        def drawn() -> Iterator[Perturbed]:
            for number, trial in enumerate(missing):
                given[number] = self._draw(setting, trial)
                yield given[number]

        if self._processes.are_elsewhere:
            panel = replace(setting.panel, criterion=self.baseline.criterion)
            return self._processes.map(_run, ((panel, trial) for trial in drawn()))
        return self._processes.map(run_perturbed, ((self.trainer, trial) for trial in drawn()))

    # --------------------------------------------------------------------------------------------------------- drawing
    def _draw(self, setting: Setting, trial: int) -> Perturbed:
        """The perturbations of a trial: of the same sizes in all settings."""
        trajectory, n_phases, noisy = self.baseline.trajectory, self.trainer.n_phases, setting.controls > 0
        key = None if not noisy else trial if setting.kind != "none" else -1 - trial
        how = Looking(every_loss=noisy, stride=setting.stride, key=key)
        expected = trajectory.crossing.interpolated
        if setting.probability is not None:
            later = tuple(self._later(setting, trial))
            first = min(next((p.at_iter for p in later), trajectory.n_iters), trajectory.n_iters - 1)
            return Perturbed(trajectory.states[first * n_phases], first * n_phases, expected, how, later, self.seed)
        state, lost = self._perturbed(setting, trial)
        return Perturbed(state, setting.at_iter * n_phases, expected, how, lost_fraction=lost)

    def _perturbed(self, setting: Setting, trial: int) -> tuple[State, float]:
        """x(T) + δ, and the fraction of the groups that were reset for it."""
        before = self.baseline.trajectory.states[setting.at_iter * self.trainer.n_phases]
        rng = stream(self.seed, "perturbation", trial)
        part = setting.largest * (1.0 - rng.random())
        norm = part * float(self.baseline.distances[setting.at_iter])
        if setting.kind == "random":
            return normal(before, norm, rng), 0.0
        if setting.kind == "adversarial":
            return away_from(before, self.baseline.optimum, norm), 0.0
        if setting.kind == "reset":
            return reset(before, self.trainer.initial, lose_groups(groups_of(self.trainer), part, rng)), part
        return before, 0.0

    def _later(self, setting: Setting, trial: int) -> Iterator[Later]:
        """Those of a trial, until long after it must be over."""
        assert setting.probability is not None
        rng = stream(self.seed, "struck", trial)
        largest = setting.largest * float(self.baseline.distances[setting.at_iter])
        at = 0
        while True:
            at += int(rng.geometric(setting.probability))
            if at > LONGEST * self.baseline.trajectory.n_iters:
                return
            yield Later(at, largest * (1.0 - rng.random()), trial)

    # -------------------------------------------------------------------------------------------------------- reporting
    def _columns(self, setting: Setting) -> dict[str, Any]:
        found = {
            "figure": setting.figure,
            "setting": setting.name,
            "panel": setting.panel.name,
            "model_seed": self.trainer.problem.seed,
            "n_shards": self.trainer.problem.n_shards,
            "baseline_iters": setting.baseline_iters,
            "criterion": float(self.baseline.criterion),
            "measured": setting.panel.measured,
            "reference_iters": setting.reference_iters,
            "perturbation": setting.kind,
            "at_iter": -1 if setting.probability is not None else setting.at_iter,
            "probability": 1.0 if setting.probability is None else setting.probability,
            "largest": setting.largest,
            "seed": self.seed,
        }
        assert tuple(found) == SETTINGS
        return found

    def _row(self, setting: Setting, trial: int, perturbed: Perturbed, outcome: tuple[Crossing, int]) -> BoundRow:
        reached, n_struck = outcome
        control = self._control or self.baseline.trajectory.crossing
        later = perturbed.later[:n_struck]
        at, norm = [p.at_iter for p in later], sum(p.norm for p in later)
        if setting.probability is None:
            before = self.baseline.trajectory.states[perturbed.commit]
            at, norm = [setting.at_iter], distance_between(self.trainer, perturbed.state, before)
        estimates: Any = dict.fromkeys(ESTIMATES, 0)
        row = BoundRow(
            **self._columns(setting),
            **estimates,
            trial=trial,
            n_perturbations=len(at),
            last_at_iter=at[-1] if at else -1,
            lost_fraction=perturbed.lost_fraction,
            norm=float(norm),
            discounted_sum=0.0,
            control=control.interpolated,
            control_whole=control.whole,
            cost=reached.interpolated - control.interpolated,
            cost_whole=reached.whole - control.whole,
            bound=0.0,
            bound_high=0.0,
        )
        return self._under_the_bound(setting, row)

    def _rate(self, from_iter: int | None) -> RateEstimate:
        if from_iter not in self._rates:
            self._rates[from_iter] = self.baseline.rate(from_iter)
        return self._rates[from_iter]

    def _under_the_bound(self, setting: Setting, row: BoundRow) -> BoundRow:
        """With the present estimates: a better way to estimate c does not make trials worthless."""
        from_iter = None if setting.probability is not None else setting.at_iter
        rate = self._rate(from_iter)
        at, norms = [setting.at_iter], [row.norm]
        if setting.probability is not None:
            later = list(islice(self._later(setting, row.trial), row.n_perturbations))
            at, norms = [p.at_iter for p in later], [p.norm for p in later]
        since = [a - (from_iter or 0) for a in at]
        return replace(
            row,
            c=rate.c,
            c_low=rate.c_low,
            c_high=rate.c_high,
            bound_from_iter=from_iter or 0,
            distance=rate.start,
            distance_low=rate.start_low,
            discounted_sum=float(discounted_sum(norms, since, rate.c)) if any(norms) else 0.0,
            bound=_bound(norms, since, rate.start, rate.c),
            bound_high=_bound(norms, since, rate.start_low, rate.c_high),
        )


def _bound(norms: Sequence[float], at_iters: Sequence[int], start: float, c: float) -> float:
    """0 without perturbations; infinite where the interval of c reaches 1, and the theorem says nothing."""
    if not any(norms):
        return 0.0
    return float(perturbation_cost_bound(norms, at_iters, start, c)) if c < 1 else math.inf
