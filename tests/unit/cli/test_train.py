from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Ran, Scarml

OWN_MODEL = """
import scarml as scar
from scarml.models.qp import QP

class Careless(QP):
    def compute(self, ctx, shard, reads, local):
        if ctx.iteration == 2:
            raise RuntimeError("my own mistake")
        return super().compute(ctx, shard, reads, local)

class Leaving(QP):
    def compute(self, ctx, shard, reads, local):
        raise SystemExit(75)

class Demanding(QP):
    def __init__(self, n_clusters):
        raise AssertionError

class Torn(QP):
    def tables(self, data):
        raise RuntimeError("no tables")

class Clumsy(QP):
    def compute(self, ctx, shard, reads, local):
        return scar.Computed([scar.Update("x", scar.ALL, reads["x"].value[:, None])] if reads else ())

class Odd(QP):
    defaults = 5

class Diverging(QP):
    def compute(self, ctx, shard, reads, local):
        if not shard.data:
            return scar.Computed()
        return scar.Computed([scar.Update("x", scar.ALL, reads["x"].value * float("nan"))])
"""


@pytest.fixture
def own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_model_of_a_test.py").write_text(OWN_MODEL)
    monkeypatch.syspath_prepend(tmp_path)


def result_of(ran: Ran) -> dict[str, Any]:
    """All of stdout is one JSON object."""
    result = json.loads(ran.out)
    assert result["schema_version"] == 1
    assert isinstance(result, dict)
    return result


def test_a_run_converges_through_a_failure(scarml: Scarml) -> None:
    ran = scarml("train", "qp", "--kill", "servers:2@5", "--json")
    result = result_of(ran)
    assert ran.code == 0
    assert result["converged"]
    assert len(result["failures"]) == 2
    assert result["run"] == "scar-runs/qp-1"
    assert ran.err.startswith("run folder: scar-runs/qp-1\ncheckpoint: priority, 0.5 of 4 blocks every iteration")
    assert "is LOST (simulated)" in ran.err
    assert "partial recovery in" in ran.err
    assert "\x1b" not in ran.err


def test_people_get_a_table_on_stdout(scarml: Scarml) -> None:
    ran = scarml("train", "qp", "--kill", "servers:1@5")
    labels = [line.split()[0] for line in ran.out.splitlines()]
    assert labels == ["outcome", "iterations", "loss_sum", "lost", "recovery", "saves", "time", "digest", "run"]


def test_each_start_without_a_folder_makes_a_new_one(scarml: Scarml) -> None:
    runs = [result_of(scarml("train", "qp", "--max-iters", "2", "--json"))["run"] for _ in range(2)]
    assert runs == ["scar-runs/qp-1", "scar-runs/qp-2"]


def test_quiet_is_silent(scarml: Scarml) -> None:
    assert scarml("train", "qp", "--max-iters", "2", "--json", "-q").err == ""


def test_verbose_shows_every_event(scarml: Scarml) -> None:
    err = scarml("train", "qp", "--max-iters", "2", "-v").err
    assert "iteration_committed iteration=2 commit=2" in err
    assert "save_staged" in err


def test_events_as_json_lines(scarml: Scarml) -> None:
    err = scarml("train", "qp", "--max-iters", "2", "--log-format", "json").err
    events = [json.loads(line)["event"] for line in err.splitlines()]
    assert (events[0], events[-1]) == ("run_started", "run_finished")


def test_max_iters_is_done_only_without_a_criterion(scarml: Scarml, tmp_path: Path) -> None:
    assert scarml("train", "qp", "--max-iters", "2").code == 3
    (tmp_path / "own_model_without_criterion.py").write_text(
        "from scarml.models.qp import QP\nclass Plain(QP):\n    defaults = {}\n"
    )
    assert scarml("train", "own_model_without_criterion:Plain", "--max-iters", "2").code == 0


def test_the_criterion_may_be_a_mean(scarml: Scarml) -> None:
    by_mean = scarml("train", "qp", "--stop-loss-mean", "100", "--json")
    by_sum = scarml("train", "qp", "--stop-loss-sum", "100", "--json")
    assert (by_mean.code, by_sum.code) == (0, 0)
    assert result_of(by_mean)["digest"] == result_of(by_sum)["digest"]


def test_resuming_continues_what_ended(scarml: Scarml) -> None:
    whole = result_of(scarml("train", "qp", "--max-iters", "9", "--json"))
    command = ("train", "qp", "--run", "a", "--json", "--resume", "auto", "--max-iters")
    scarml(*command, "4")
    ran = scarml(*command, "9")
    assert result_of(ran)["digest"] == whole["digest"]
    assert "going on at x(4)" in ran.err


def test_settings_are_stored_and_can_be_fed_back(scarml: Scarml) -> None:
    first = result_of(scarml("train", "qp", "--max-iters", "3", "--seed", "5", "--run", "a", "--json"))
    again = result_of(scarml("train", "--config", "a/run.json", "--json"))
    assert again["digest"] == first["digest"]
    assert 'model = "qp"' in scarml("train", "--config", "a/run.json", "--print-config").out


def test_policy_full_needs_no_fraction(scarml: Scarml) -> None:
    ran = scarml("train", "qp", "--policy", "full", "--recovery", "full", "--kill", "servers:1@5", "--json")
    assert ran.code == 0
    assert "all 4 blocks every 8 iterations, 32 bytes each time" in ran.err
    assert "everything is back at x(0)" in ran.err


def test_options_beside_a_preset_are_what_differs_from_it(scarml: Scarml) -> None:
    def checkpoint(*options: str) -> dict[str, str]:
        assert scarml("train", "qp", "--max-iters", "3", "--run", "-".join(["r", *options]), *options).code == 3
        return json.loads(Path("-".join(["r", *options]), "run.json").read_text())["description"]["checkpoint"]

    names = ("budget_in", "encode", "phase_aware")
    general, plain = checkpoint("--preset", "general"), checkpoint()
    assert [general[n] for n in names] == ["bytes", "narrow", "True"]
    assert [plain[n] for n in names] == ["blocks", "plain", "False"]
    mixed = checkpoint("--preset", "general", "--encode", "bfloat16", "--no-phase-aware")
    assert [mixed[n] for n in names] == ["bytes", "bfloat16", "False"]


RATINGS = "userId,movieId,rating,timestamp\n" + "".join(
    f"{u},{i},{1 + (3 * u + 5 * i) % 9 / 2},0\n" for u in range(1, 13) for i in range(1, 10) if (u * i + u) % 3
)


def test_what_was_lost_is_mended(scarml: Scarml, tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text(RATINGS)
    to_run = (
        "train",
        "mf",
        "--data",
        "ratings.csv",
        "--max-iters",
        "6",
        "--kill",
        "servers:2@4",
        "--recovery",
        "repair",
    )
    ran = scarml(*to_run, "--json")
    (recovery,) = result_of(ran)["recoveries"]
    assert (ran.code, recovery["kind"]) == (0, "repair")
    assert 0 < recovery["repair_iters"] < 1
    assert recovery["repair_seconds"] > 0
    assert recovery["perturbation_repaired"] != recovery["perturbation"]
    assert "repair recovery in" in ran.err
    assert "of an iteration's work; perturbation" in ran.err
    told = next(line for line in scarml(*to_run).out.splitlines() if line.startswith("recovery "))
    assert " after the repair; repaired in " in told


def test_a_model_that_mends_nothing_says_so(scarml: Scarml) -> None:
    ran = scarml("train", "qp", "--kill", "servers:2@5", "--recovery", "repair", "--json")
    assert "this model mends nothing: --recovery repair restores what is lost, as partial does" in ran.err
    (recovery,) = result_of(ran)["recoveries"]
    assert (recovery["kind"], "repair_iters" in recovery) == ("partial", False)


def test_losses_that_did_not_happen_are_told(scarml: Scarml) -> None:
    ran = scarml("train", "qp", "--max-iters", "2", "--kill", "servers:1@9", "--run", "a")
    assert "1 --kill did not happen, the first one on x(9): the run ended at x(2)" in ran.err
    ran = scarml("train", "qp", "--max-iters", "4", "--kill", "servers:1@1", "--run", "a", "--resume", "auto")
    assert "1 --kill did not happen, the first one on x(1): the run went on at x(2)" in ran.err
    ran = scarml("train", "qp", "--max-iters", "4", "--kill", "server-0@1", "--kill", "server-0@2")
    assert "1 --kill did not happen, the first one on x(2): nobody of that kind was left to lose" in ran.err


def test_a_quiet_run_still_says_why_it_failed(scarml: Scarml) -> None:
    ran = scarml("train", "qp", "--kill", "servers:4@3", "-q")
    assert ran.err.splitlines() == ["scarml: error: no server is left; the last was server-3"]


def test_a_run_that_was_saved_with_another_policy_is_not_begun_anew_by_full_recovery(scarml: Scarml) -> None:
    scarml("train", "qp", "--max-iters", "9", "--run", "a")
    ran = scarml("train", "qp", "--run", "a", "--resume", "auto", "--policy", "full", "--recovery", "full")
    assert ran.code == 2
    assert "has policy priority, this command has full" in ran.err


def test_all_servers_lost_says_how_to_go_on(scarml: Scarml) -> None:
    ran = scarml("train", "qp", "--kill", "servers:4@3")
    assert ran.code == 3
    assert ran.err.splitlines()[-1].endswith("scarml train qp --run scar-runs/qp-1 --resume auto")


@pytest.mark.usefixtures("own_model")
def test_an_exception_in_a_model_of_ones_own_names_model_and_phase(scarml: Scarml) -> None:
    ran = scarml("train", "own_model_of_a_test:Careless")
    assert ran.code == 1
    assert "Traceback" in ran.err
    assert ran.err.splitlines()[-1] == (
        "scarml: error: model own_model_of_a_test:Careless raised RuntimeError in compute(), iteration 2, phase 0: "
        "my own mistake"
    )


@pytest.mark.usefixtures("own_model")
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("Leaving", 1, "raised SystemExit in compute(), iteration 1, phase 0: 75"),
        ("Torn", 1, "raised RuntimeError in tables(): no tables"),
        ("Clumsy", 1, "raised ValueError in apply(), iteration 1, phase 0: "),
        ("Odd", 1, "Either model own_model_of_a_test:Odd breaks the protocol of models"),
        ("Demanding", 2, "Demanding needs a value for its hyper-parameter 'n_clusters'; it has no default"),
    ],
)
def test_a_mistake_in_a_model_of_ones_own_is_no_bug_of_ours(scarml: Scarml, name: str, code: int, words: str) -> None:
    ran = scarml("train", f"own_model_of_a_test:{name}")
    assert ran.code == code
    assert words in ran.err.splitlines()[-1]
    assert "please report" not in ran.err


def test_a_module_that_ends_the_process_is_no_model(scarml: Scarml, tmp_path: Path) -> None:
    (tmp_path / "module_that_exits.py").write_text("raise SystemExit(3)")
    ran = scarml("train", "module_that_exits:Model")
    assert ran.code == 2
    assert "importing 'module_that_exits' failed with SystemExit: 3" in ran.err


@pytest.mark.usefixtures("own_model")
def test_values_that_are_not_finite_are_no_trouble_of_the_store(scarml: Scarml) -> None:
    ran = scarml("train", "own_model_of_a_test:Diverging", "--max-iters", "4", "--json")
    assert ran.code == 3
    assert result_of(ran)["losses"][-1]["loss_sum"] is None
    assert "NaN or infinity" in ran.err


def test_a_bug_keeps_a_short_traceback(scarml: Scarml, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("scarml.cli.train_run.budget_in_words", broken)
    ran = scarml("train", "qp")
    assert ran.code == 1
    assert "Traceback" in ran.err
    assert "This is a bug in SCAR" in ran.err


def test_two_v_show_the_traceback_of_an_error(scarml: Scarml) -> None:
    assert "Traceback" in scarml("train", "qp", "--run", "a", "--resume", "must", "-vv").err


def test_metrics_are_shown_and_early_stopping_ends_the_run_well(scarml: Scarml) -> None:
    command = ["train", "mlr", "--data", "mnist-10k", "--held-out", "0.1", "--metrics-every", "2", "--run", "r"]
    stopping = ["--patience", "2", "--metric", "accuracy", "--min-delta", "0.5"]
    ran = scarml(*command, *stopping)
    assert ran.code == 0
    assert "outcome     stopped early: accuracy was no better by more than 0.5 in 2 evaluations" in ran.out
    assert "held out    cross_entropy 2.30259 to " in ran.out
    assert "held out    accuracy 0." in ran.out
    assert "; the best that counted was 0." in ran.out
    shown = scarml("inspect", "r").out
    assert "held out    0.1" in shown
    assert "last held-out cross_entropy " in shown
    status = json.loads(scarml("status", "r", "--json").out)["status"]
    assert set(status["metrics"]) == {"cross_entropy", "accuracy"}
    assert status["metrics_iteration"] > 0
    again = result_of(scarml(*command, *stopping, "--resume", "must", "--json"))
    assert again["outcome"] == "stopped-early"
    assert [m["iterations"] for m in again["metrics"]] == [status["iteration"]]
    assert scarml(*command, "--resume", "must", "--held-out", "0.2").code == 2


def test_the_models_own_criterion_is_for_what_is_trained_on(scarml: Scarml) -> None:
    ran = scarml("train", "mlr", "--data", "mnist-10k", "--held-out", "0.2")
    assert ran.code == 0
    assert "is below 3,633.36" in ran.out, "4,541.7 for all"


def test_patience_takes_the_place_of_the_models_own_criterion(scarml: Scarml) -> None:
    command = ["train", "mlr", "--data", "mnist-10k", "--held-out", "0.5", "--patience", "9", "--max-iters", "1"]
    assert scarml(*command).code == 0, "there was no criterion that was not met"
    both = scarml(*command, "--stop-loss-sum", "1")
    assert both.code == 3


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--metrics-every 2", "mnist-10k has no test part; hold out a share of it with --held-out 0.1"),
        ("--held-out test", "mnist-10k has no test part, as mnist, 20newsgroups-5k have"),
        ("--held-out nowhere", "there is no data set 'nowhere'"),
        ("--held-out 0.1 --metrics-every 0", "--metrics-every is 0; expected at least 1"),
        ("--held-out 0.1 --patience 0", "--patience is 0; expected at least 1"),
        ("--held-out 0.1 --patience x", "--patience is 'x'; expected a whole number"),
        ("--held-out 0.1 --metric accuracy", "--metric is for early stopping; give --patience as well"),
        ("--held-out 0.1 --patience 1 --metric f1", "--metric 'f1' is unknown; the model has cross_entropy, accuracy"),
        ("--held-out 0.1 --patience 1 --min-delta nan", "--min-delta is nan; expected a finite number"),
    ],
)
def test_settings_of_metrics_that_make_no_sense_are_one_sentence(scarml: Scarml, flags: str, words: str) -> None:
    ran = scarml("train", "mlr", "--data", "mnist-10k", *flags.split())
    assert ran.code == 2
    assert words in ran.err
