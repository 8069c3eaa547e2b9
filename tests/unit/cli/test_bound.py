"""``scarml bound``: from numbers, and from runs whose rate is known."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Scarml

import scarml as scar
from scarml.engine.fault_plan import Kill
from scarml.theory import perturbation_cost_bound, stale_cost_bound


@pytest.fixture(scope="module")
def qp_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("bound") / "qp"
    kills = [Kill.parse("servers:1@6")]
    scar.Job(scar.QP(), None, run=run, servers=2, stop=scar.Stop(max_iters=50), kills=kills).run()
    return run


def answer(scarml: Scarml, *args: str) -> dict[str, Any]:
    ran = scarml("bound", *args, "--json")
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, Any] = json.loads(ran.out)
    assert found["schema_version"] == 1
    return found


def test_saved_values_of_a_known_age(scarml: Scarml) -> None:
    found = answer(scarml, "--c", "0.95", "--age", "8", "--lost-fraction", "30%")
    (cost,) = found["costs"]
    assert cost["iters"] == pytest.approx(float(stale_cost_bound(8, 0.3, 0.95)))
    assert cost["low"] == cost["iters"] == cost["high"]
    for same in ("0.3", "3/10", "30 %"):
        assert (
            answer(scarml, "--c", "0.95", "--age", "8", "--lost-fraction", same)["costs"][0]["iters"] == cost["iters"]
        )
    worse = answer(scarml, "--c", "0.95", "--age", "8", "--lost-fraction", "30%", "--direction", "any")
    assert worse["costs"][0]["iters"] > cost["iters"]


def test_without_a_fraction_several_are_shown_up_to_everything(scarml: Scarml) -> None:
    ran = scarml("bound", "--c", "0.95", "--age", "8")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "rate        c = 0.95 an iteration, as given"
    assert [line.split()[0] for line in lines if " % " in line] == ["10", "25", "50", "100"]
    assert lines[-1].split() == ["100", "%", "8"]


def test_perturbations_of_known_sizes(scarml: Scarml) -> None:
    found = answer(scarml, "--c", "0.95", "--x0-distance", "10", "--delta", "1.2@50", "--delta", "0.4@80")
    assert found["costs"][0]["iters"] == pytest.approx(float(perturbation_cost_bound([1.2, 0.4], [50, 80], 10, 0.95)))
    now = answer(scarml, "--c", "0.95", "--distance", "3", "--delta", "1.2", "--lost-fraction", "1/4")
    assert now["costs"][0]["iters"] == pytest.approx(math.log(1 + 0.6 / 3) / math.log(1 / 0.95))


def test_a_perturbation_in_every_iteration(scarml: Scarml) -> None:
    args = ("--c", "0.95", "--x0-distance", "10", "--every-iteration", "0.01")
    found = answer(scarml, *args, "--eps", "0.5")
    assert found["irreducible_error"] == pytest.approx(0.19)
    assert found["costs"][0]["iters"] > 0
    ran = scarml("bound", *args, "--eps", "0.1")
    assert (ran.code, ran.out) == (2, "")
    assert "irreducible error" in ran.err


def test_a_run_shows_its_rate_and_what_losses_cost(scarml: Scarml, qp_run: Path) -> None:
    found = answer(scarml, str(qp_run), "--lost-fraction", "50%")
    rate = found["rate"]
    assert rate["is_linear"]
    assert not rate["is_given"]
    assert rate["from_iter"] >= 6  # after the loss
    assert rate["c"] == pytest.approx(scar.QP().rate, abs=1e-4)
    assert found["costs"][0]["iters"] == pytest.approx(float(stale_cost_bound(8, 0.5, rate["c"])))  # C
    (past,) = found["past"]
    assert (past["iteration"], past["kind"], past["lost_blocks"]) == (6, "partial", 2)
    assert past["lost_fraction"] == 0.5
    assert past["iters"] == pytest.approx(float(stale_cost_bound(past["mean_age_iters"], 0.5, rate["c"])))
    by_norm = answer(scarml, str(qp_run), "--x0-distance", "10")["past"][0]
    assert by_norm["iters"] == pytest.approx(
        float(perturbation_cost_bound([by_norm["perturbation"]], [6], 10, rate["c"]))
    )


def test_a_run_that_was_killed_is_as_stale_as_its_folder_says(scarml: Scarml, qp_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "killed"
    shutil.copytree(qp_run, run)
    for last in sorted((run / "segments").glob("*.safetensors"))[-3:]:
        last.unlink()
    for last in sorted((run / "events").iterdir())[-1:]:
        last.unlink()
    ran = scarml("bound", str(run), "--lost-fraction", "100%")
    assert (ran.code, ran.err) == (0, "")
    saved = next(line for line in ran.out.splitlines() if line.startswith("saved"))
    assert "4 blocks, at x(" in saved
    assert "iterations old on average" in saved
    found = answer(scarml, str(run), "--lost-fraction", "100%", "--c", "0.9")
    assert found["rate"]["is_given"]
    assert found["costs"][0]["iters"] == pytest.approx(found["age_iters"])
    assert found["age_iters"] > 0


def test_with_full_recovery_everything_is_set_back(scarml: Scarml, tmp_path: Path) -> None:
    run = tmp_path / "full"
    checkpoint = scar.Checkpoint(policy="full", fraction=1, interval_iters=8, recovery="full")
    scar.Job(scar.QP(), None, run=run, servers=2, stop=scar.Stop(max_iters=12), checkpoint=checkpoint).run()
    ran = scarml("bound", str(run), "--lost-fraction", "10%", "--c", "0.9", "--age", "6")
    assert "recovery is full: whatever is lost, everything is set back" in ran.out
    assert ran.out.splitlines()[-1].split()[:3] == ["10", "%", "6"]


def test_losses_that_are_not_linear_are_called_so(scarml: Scarml, qp_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "sublinear"
    shutil.copytree(qp_run, run)
    shutil.rmtree(run / "events")
    (run / "events").mkdir()
    events = [{"event": "loss_evaluated", "iteration": k, "loss_sum": 5 + 1 / (k + 1)} for k in range(100)]
    (run / "events" / "00000001-000000.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    ran = scarml("bound", str(run))
    assert ran.code == 0
    assert "NOT LINEAR: it gets slower" in ran.out
    assert answer(scarml, str(run))["rate"]["is_linear"] is False


def test_too_few_losses_ask_for_c(scarml: Scarml, qp_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "short"
    shutil.copytree(qp_run, run)
    shutil.rmtree(run / "events")
    ran = scarml("bound", str(run))
    assert (ran.code, ran.out) == (2, "")
    assert "give it with --c" in ran.err
    assert scarml("bound", str(run), "--c", "0.9").code == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "name a run"),
        (["--c", "0.9"], "what is lost"),
        (["--c", "1.5", "--age", "3"], "--c is 1.5"),
        (["--c", "nan", "--age", "3"], "--c is nan"),
        (["--c", "0.9", "--age", "-1"], "at least 0"),
        (["--c", "0.9", "--age", "3", "--lost-fraction", "30"], "for 30 percent write 30%"),
        (["--c", "0.9", "--age", "3", "--lost-fraction", "some"], "expected for example 30%"),
        (["--c", "0.9", "--age", "3", "--lost-fraction", "1/0"], "expected for example 30%"),
        (["--c", "0.9", "--age", "3", "--delta", "1"], "--delta and --age"),
        (["--c", "0.9", "--age", "3", "--eps", "1"], "--every-iteration"),
        (["--c", "0.9", "--delta", "1"], "needs --distance"),
        (["--c", "0.9", "--delta", "1@5"], "needs --x0-distance"),
        (["--c", "0.9", "--delta", "1@5", "--delta", "1", "--x0-distance", "1"], "none does"),
        (["--c", "0.9", "--delta", "1", "--delta", "1", "--distance", "1"], "the later weigh more"),
        (["--c", "0.9", "--delta", "much@5", "--x0-distance", "1"], "NORM@K"),
        (["--c", "0.9", "--delta", "-1@5", "--x0-distance", "1"], "at least 0"),
        (["--c", "0.9", "--delta", "1@5", "--x0-distance", "0"], "above 0"),
        (["--c", "0.9", "--every-iteration", "1"], "--x0-distance and --eps"),
        (["--c", "0.9", "--every-iteration", "1", "--age", "1"], "stands alone"),
        (["nowhere"], "there is no run in nowhere"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence_and_exit_code_2(scarml: Scarml, args: list[str], said: str) -> None:
    ran = scarml("bound", *args)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
