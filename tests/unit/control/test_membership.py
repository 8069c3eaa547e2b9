"""Who is to join and who is to leave: requests, refusals, replacements, and how often a replacement is tried."""

from __future__ import annotations

import pytest

from scarml.control import messages as m
from scarml.control.membership import MOST_FAILED_STARTS, Change, Membership
from scarml.control.view import View, next_view


def view_of(servers: list[str], workers: list[str], number: int = 1) -> View:
    return View(number, tuple(servers), tuple(workers), {"w": (servers[0],)}, (workers[0],))


class Crowd:
    """A membership and the view it is about."""

    def __init__(self, servers: int = 2, workers: int = 1, *, replaces: bool = False) -> None:
        names = [f"server-{i}" for i in range(servers)], [f"worker-{i}" for i in range(workers)]
        self.view = view_of(*names)
        self.members = Membership(*names, replaces=replaces)
        self.lost: set[str] = set()

    def scale(self, servers: int | None = None, workers: int | None = None) -> list[str]:
        return brief(self.members.scale(self.view, self.lost, servers, workers))

    def drain(self, node: str, *, replace: bool = False) -> list[str]:
        return brief(self.members.drain(self.view, self.lost, node, "asked to", replace=replace))

    def join(self, node: str) -> list[str]:
        return brief(self.members.joined(node))

    def lose(self, node: str) -> list[str]:
        """A node is gone, and the view without it is made if it was there."""
        done = brief(self.members.lose(self.view, {node}, node))
        left = {n for n in self.view.nodes if n != node}
        if node in self.view.nodes and {"server", "worker"} == {n.split("-")[0] for n in left}:
            self.view = next_view(self.view, [node])
        return done

    def reshape(self) -> Change:
        """Make the view with all changes that may be made."""
        change = self.members.change(self.view)
        self.view = next_view(self.view, change.leaving, change.servers, change.workers)
        self.members.made(change)
        return change


def brief(actions: list[m.Action]) -> list[str]:
    done = []
    for action in actions:
        match action:
            case m.StartNode():
                done.append(f"start {action.node}")
            case m.StopNode():
                done.append(f"stop {action.node}")
            case m.Report():
                fields = action.record.fields
                about = fields["reason"] if action.record.name == "request_refused" else fields.get("node", "")
                done.append(f"{action.record.name} {about}".strip())
    return done


# ------------------------------------------------------------------------------------------------------------- scaling
def test_scaling_up_starts_nodes_under_names_never_used_before() -> None:
    crowd = Crowd()
    assert crowd.scale(servers=4) == ["scale_requested", "start server-2", "start server-3"]
    assert crowd.join("server-3") == ["node_joined server-3"]
    assert crowd.reshape() == Change((), ("server-3",), ())
    crowd.lose("server-3")
    crowd.lose("server-2")
    assert crowd.scale(servers=3) == ["scale_requested", "start server-4"]


def test_names_that_end_in_no_number_are_left_alone() -> None:
    members = Membership(["anna"], ["worker-07"])
    view = view_of(["anna"], ["worker-07"])
    assert brief(members.scale(view, set(), 2, 2)) == ["scale_requested", "start server-0", "start worker-8"]


def test_scaling_down_lets_the_newest_leave_and_they_go_when_all_obey_the_view() -> None:
    crowd = Crowd(servers=3, workers=2)
    assert crowd.scale(servers=1, workers=1) == ["scale_requested"]
    assert crowd.reshape() == Change(("server-1", "server-2", "worker-1"))
    assert crowd.members.knows("server-1")
    assert crowd.members.release() == ["server-1", "server-2", "worker-1"]
    assert not crowd.members.knows("server-1")
    assert crowd.members.release() == []


def test_scaling_to_what_there_is_changes_nothing() -> None:
    crowd = Crowd()
    assert crowd.scale(servers=2, workers=1) == ["scale_requested"]
    assert crowd.members.change(crowd.view).is_empty


def test_nobody_scales_to_no_node_at_all_and_then_nothing_of_the_request_is_done() -> None:
    crowd = Crowd()
    assert crowd.scale(servers=5, workers=0) == ["request_refused 0 workers are too few; expected at least 1"]
    assert crowd.members.coming("server") == []


def test_who_is_lost_or_leaves_does_not_count_when_there_is_scaling() -> None:
    crowd = Crowd(servers=4)
    crowd.lost = {"server-0"}
    crowd.drain("server-1")
    assert crowd.scale(servers=3) == ["scale_requested", "start server-4"]


def test_scaling_down_while_nodes_start_ends_them_as_soon_as_they_have_started() -> None:
    crowd = Crowd()
    crowd.scale(servers=4)
    crowd.join("server-2")
    assert crowd.scale(servers=2) == ["scale_requested", "node_left server-2", "stop server-2"]
    assert crowd.join("server-3") == ["node_left server-3", "stop server-3"]
    assert crowd.members.change(crowd.view).is_empty


def test_scaling_up_again_keeps_those_who_were_to_leave_and_have_not_left() -> None:
    crowd = Crowd(servers=3)
    crowd.scale(servers=1)
    assert crowd.scale(servers=3) == ["scale_requested"]
    assert crowd.members.change(crowd.view).is_empty
    crowd.scale(servers=4)
    crowd.scale(servers=3)
    assert crowd.scale(servers=4) == ["scale_requested"], "the one that starts is wanted again"
    assert crowd.join("server-3") == ["node_joined server-3"]


def test_scaling_keeps_nobody_who_was_asked_to_leave_by_name() -> None:
    crowd = Crowd(servers=3)
    crowd.drain("server-0")
    assert crowd.scale(servers=3) == ["scale_requested", "start server-3"]
    assert crowd.reshape() == Change(("server-0",))


def test_one_kind_can_be_scaled_while_the_other_is_left_as_it_is() -> None:
    crowd = Crowd(servers=3, workers=3)
    crowd.scale(workers=1)
    assert crowd.scale(servers=2) == ["scale_requested"]
    assert crowd.members.change(crowd.view) == Change(("server-2", "worker-1", "worker-2"))


# ------------------------------------------------------------------------------------------------------------ draining
def test_a_node_that_is_asked_to_leaves_with_the_next_view() -> None:
    crowd = Crowd()
    assert crowd.drain("server-0") == ["drain_requested server-0"]
    assert crowd.reshape() == Change(("server-0",))
    assert crowd.members.release() == ["server-0"]


def test_asking_a_node_that_leaves_already_changes_nothing() -> None:
    crowd = Crowd()
    crowd.drain("server-0")
    assert crowd.drain("server-0") == []
    crowd.reshape()
    assert crowd.drain("server-0") == [], "it is handing over"


@pytest.mark.parametrize(("node", "others"), [("server-9", "server-0, server-1"), ("worker", "server-0, server-1")])
def test_there_must_be_such_a_node(node: str, others: str) -> None:
    assert Crowd().drain(node) == [f"request_refused there is no node {node}; there are {others}, worker-0"]


def test_a_node_that_is_lost_cannot_be_asked_to_leave() -> None:
    crowd = Crowd()
    crowd.lost = {"server-1"}
    expected = "request_refused there is no node server-1; there are server-0, worker-0"
    assert crowd.drain("server-1") == [expected]


def test_the_last_of_a_kind_cannot_leave() -> None:
    crowd = Crowd()
    crowd.drain("server-1")
    why = "is the last {}; add another one first, or stop the run"
    assert crowd.drain("server-0") == [f"request_refused server-0 {why.format('server')}"]
    assert crowd.drain("worker-0") == [f"request_refused worker-0 {why.format('worker')}"]
    assert crowd.members.change(crowd.view) == Change(("server-1",))


def test_the_last_of_a_kind_that_is_not_lost_cannot_leave() -> None:
    crowd = Crowd()
    crowd.lost = {"server-0"}
    assert "is the last server" in crowd.drain("server-1")[0]


def test_the_last_may_leave_when_another_is_coming_but_not_before_it_is_there() -> None:
    crowd = Crowd(servers=1)
    crowd.scale(servers=2)
    assert crowd.drain("server-0") == ["drain_requested server-0"]
    assert crowd.members.change(crowd.view).is_empty
    crowd.join("server-1")
    assert crowd.reshape() == Change(("server-0",), ("server-1",))


def test_a_node_that_is_starting_or_ready_can_be_asked_to_leave() -> None:
    crowd = Crowd()
    crowd.scale(servers=4)
    crowd.join("server-2")
    assert crowd.drain("server-2") == ["drain_requested server-2", "node_left server-2", "stop server-2"]
    assert crowd.drain("server-3") == ["drain_requested server-3"]
    assert crowd.join("server-3") == ["node_left server-3", "stop server-3"]


def test_who_was_to_leave_stays_if_all_others_are_lost() -> None:
    crowd = Crowd()
    crowd.drain("server-1")
    assert crowd.lose("server-0") == ["request_refused server-1 is the last server now"]
    assert crowd.members.change(crowd.view).is_empty
    assert crowd.scale(servers=1) == ["scale_requested"]


def test_a_starting_node_that_was_not_wanted_any_more_is_wanted_when_all_others_are_lost() -> None:
    crowd = Crowd(servers=1)
    crowd.scale(servers=2)
    crowd.scale(servers=1)
    assert crowd.members.coming("server") == []
    assert crowd.lose("server-0") == ["request_refused server-1 is the last server now"]
    assert crowd.members.coming("server") == ["server-1"]
    assert crowd.join("server-1") == ["node_joined server-1"]


# ----------------------------------------------------------------------------------------------------------- replacing
def test_a_lost_node_is_replaced_if_that_was_asked_for() -> None:
    assert Crowd(replaces=True).lose("server-0") == ["start server-2"]
    assert Crowd().lose("server-0") == []


def test_a_preempted_node_leaves_and_another_is_started_in_its_place() -> None:
    crowd = Crowd(servers=1, replaces=True)
    assert crowd.drain("server-0", replace=True) == ["drain_requested server-0", "start server-1"]
    crowd.join("server-1")
    assert crowd.reshape() == Change(("server-0",), ("server-1",))


def test_the_last_preempted_node_stays_if_nobody_replaces_it() -> None:
    assert "is the last server" in Crowd(servers=1).drain("server-0", replace=True)[0]


@pytest.mark.parametrize("stage", ["leaving", "departing"])
def test_who_was_to_go_anyway_is_not_replaced_when_lost(stage: str) -> None:
    crowd = Crowd(replaces=True)
    crowd.drain("server-0")
    if stage == "departing":
        crowd.reshape()
    assert crowd.lose("server-0") == []


def test_a_preempted_node_that_dies_before_it_has_handed_over_is_replaced_once() -> None:
    crowd = Crowd(replaces=True)
    assert crowd.drain("server-0", replace=True)[1:] == ["start server-2"]
    crowd.reshape()
    assert crowd.lose("server-0") == []
    assert crowd.members.coming("server") == ["server-2"]


def test_a_node_that_cannot_be_started_is_said_to_if_nobody_tries_again() -> None:
    crowd = Crowd()
    crowd.scale(servers=3)
    assert crowd.lose("server-2") == ["request_refused it could not be started"]
    assert crowd.scale(servers=3) == ["scale_requested", "start server-3"]


def test_a_replacement_that_fails_again_and_again_is_given_up() -> None:
    crowd = Crowd(replaces=True)
    assert crowd.lose("server-0") == ["start server-2"]
    for n in range(MOST_FAILED_STARTS):
        assert crowd.lose(f"server-{2 + n}") == [f"start server-{3 + n}"]
    last = f"server-{2 + MOST_FAILED_STARTS}"
    why = f"{MOST_FAILED_STARTS + 1} new servers in a row were lost before they had done an iteration"
    assert crowd.lose(last) == [f"request_refused {why}"]


def test_replacements_that_join_and_die_at_once_are_given_up_as_well() -> None:
    crowd = Crowd(replaces=True)
    node = crowd.lose("server-0")[0].split()[1]
    for _ in range(MOST_FAILED_STARTS):
        crowd.join(node)
        crowd.reshape()
        node = crowd.lose(node)[0].split()[1]
    crowd.join(node)
    crowd.reshape()
    assert crowd.lose(node)[0].startswith("request_refused")


def test_iterations_of_the_others_do_not_make_a_replacement_that_cannot_start_try_for_ever() -> None:
    crowd = Crowd(replaces=True)
    node = crowd.lose("server-0")[0].split()[1]
    for _ in range(MOST_FAILED_STARTS):
        crowd.members.progressed(crowd.view)
        node = crowd.lose(node)[0].split()[1]
    crowd.members.progressed(crowd.view)
    assert crowd.lose(node)[0].startswith("request_refused")


def test_a_replacement_that_has_done_an_iteration_clears_the_account() -> None:
    crowd = Crowd(replaces=True)
    node = crowd.lose("server-0")[0].split()[1]
    for _ in range(3 * MOST_FAILED_STARTS):
        crowd.join(node)
        crowd.reshape()
        crowd.members.progressed(crowd.view)
        node = crowd.lose(node)[0].split()[1]


def test_many_nodes_lost_at_once_are_all_replaced() -> None:
    crowd = Crowd(servers=10, replaces=True)
    started = [crowd.lose(f"server-{i}") for i in range(9)]
    assert started == [[f"start server-{10 + i}"] for i in range(9)]


def test_servers_that_fail_do_not_count_against_workers() -> None:
    crowd = Crowd(workers=2, replaces=True)
    node = crowd.lose("server-0")[0].split()[1]
    for _ in range(MOST_FAILED_STARTS):
        node = crowd.lose(node)[0].split()[1]
    assert crowd.lose(node)[0].startswith("request_refused")
    assert crowd.lose("worker-0") == ["start worker-2"]


# -------------------------------------------------------------------------------------------------------------- joining
def test_a_node_that_was_given_up_and_starts_after_all_is_ended() -> None:
    crowd = Crowd()
    crowd.scale(servers=3)
    crowd.lose("server-2")
    assert crowd.join("server-2") == ["stop server-2"]


def test_a_node_that_says_twice_that_it_is_ready_joins_once() -> None:
    crowd = Crowd()
    crowd.scale(servers=3)
    assert crowd.join("server-2") == ["node_joined server-2"]
    assert crowd.join("server-2") == []
    assert crowd.members.ready == ["server-2"]
    assert crowd.reshape() == Change((), ("server-2",))
    assert crowd.join("server-2") == []


def test_a_ready_node_that_is_lost_is_not_taken_into_the_view() -> None:
    crowd = Crowd()
    crowd.scale(servers=3)
    crowd.join("server-2")
    assert crowd.lose("server-2") == []
    assert crowd.members.change(crowd.view).is_empty
