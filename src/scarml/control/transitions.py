"""What the controller may be waiting for, and what may follow what.

`TRANSITIONS` is the whole of it; the diagram in ``docs/protocol.md`` is drawn from it.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from scarml.errors import ProtocolError

__all__ = ["TRANSITIONS", "State", "StateMachine"]

STORY_LENGTH = 60


class State(Enum):
    """What the controller is waiting for."""

    NEW = "the engine to start"
    INSTALLING = "nodes to install the view and to load what they lack"
    COMPUTING = "every node to be prepared"
    HOLDING = "a save to be staged, before the prepared phase is committed"
    COMMITTING = "every node to commit"
    EVALUATING = "the loss, or held-out metrics"
    DRAINING = "the save in flight, before everything is taken back"
    CLAIMING = "a new term, before everything is taken back"
    SAVING = "everything changed to be saved, before the end"
    WAITING = "a node to join, since none of its kind is left"
    FINISHED = "nothing"


_S = State
TRANSITIONS: dict[tuple[State, str], State] = {
    (_S.NEW, "start"): _S.INSTALLING,
    (_S.INSTALLING, "next phase"): _S.COMPUTING,
    (_S.INSTALLING, "evaluate"): _S.EVALUATING,
    (_S.INSTALLING, "end"): _S.SAVING,
    (_S.COMPUTING, "prepared, save not staged"): _S.HOLDING,
    (_S.COMPUTING, "decide"): _S.COMMITTING,
    (_S.HOLDING, "decide"): _S.COMMITTING,
    (_S.COMMITTING, "next phase"): _S.COMPUTING,
    (_S.COMMITTING, "evaluate"): _S.EVALUATING,
    (_S.COMMITTING, "end"): _S.SAVING,
    (_S.EVALUATING, "evaluate"): _S.EVALUATING,
    (_S.EVALUATING, "next phase"): _S.COMPUTING,
    (_S.EVALUATING, "end"): _S.SAVING,
    **{
        (state, trigger): target
        for state in (_S.INSTALLING, _S.COMPUTING, _S.HOLDING, _S.COMMITTING, _S.EVALUATING, _S.SAVING)
        for trigger, target in (
            ("recover what was lost", _S.INSTALLING),
            ("recover all, save in flight", _S.DRAINING),
            ("recover all", _S.CLAIMING),
        )
    },
    **{(state, "hand over"): _S.INSTALLING for state in (_S.INSTALLING, _S.COMMITTING, _S.EVALUATING)},
    **{(state, "wait for a node"): _S.WAITING for state in _S if state not in (_S.NEW, _S.DRAINING, _S.FINISHED)},
    (_S.WAITING, "node joined"): _S.INSTALLING,
    (_S.DRAINING, "recover all"): _S.CLAIMING,
    (_S.CLAIMING, "term claimed"): _S.INSTALLING,
    **{(state, "finish"): _S.FINISHED for state in _S if state is not _S.FINISHED},
}
"""(state, trigger) → state."""


class StateMachine:
    """Where the controller is, and the last events that it has been told of: the story of an impossible move."""

    def __init__(self) -> None:
        self.state = State.NEW
        self._story: deque[str] = deque(maxlen=STORY_LENGTH)

    def note(self, event: object) -> None:
        """An event is about to be handled."""
        text = repr(event)
        self._story.append(f"{self.state.name}: {text if len(text) <= 200 else text[:197] + '...'}")

    def check(self, trigger: str) -> State:
        """Where this would lead.

        Raises:
            ProtocolError: it cannot happen now.
        """
        target = TRANSITIONS.get((self.state, trigger))
        if target is None:
            raise ProtocolError(f"{trigger!r} cannot happen while waiting for {self.state.value}", list(self._story))
        return target

    def go(self, trigger: str) -> None:
        """Move. Raises as `check` does, and changes nothing then."""
        self.state = self.check(trigger)
