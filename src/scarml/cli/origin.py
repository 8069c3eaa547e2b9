"""x(0) of a run's blocks, from the model that its description names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scarml.core.block import Blocks, Ids, Table
from scarml.core.sequential import initial_blocks
from scarml.errors import UsageError
from scarml.models import registry
from scarml.storage.export import Origin

__all__ = ["origin_of"]


def origin_of(description: Mapping[str, Any], model_name: str | None) -> Origin:
    """What makes x(0) for a run.

    A folder may name any class, and importing it would run its code. So only built-in models are made unasked.

    Args:
        description: of the run.
        model_name: given by the user.

    Raises:
        UsageError: there is no such model, it is not the run's, or its data cannot be had.
    """
    made_by = description.get("model")
    if not isinstance(made_by, dict):
        raise UsageError("the run's description names none, so no command can make them")
    path, parameters = str(made_by.get("class")), made_by.get("parameters")
    built_in = {_path(registry.model_class(name)): name for name in registry.list_models()}
    name = model_name or built_in.get(path)
    if name is None:
        raise UsageError(f"the run was made by {path}; if you trust it, give it with --model {path}")
    model_class = registry.model_class(name)
    if _path(model_class) != path:
        raise UsageError(f"the run was made by {path}, not by {name}")
    model = model_class(**(parameters if isinstance(parameters, dict) else {}))
    tables = {t.name: t for t in model.tables(registry.data_for(model_class, description.get("data")))}
    seed = description.get("seed")
    if type(seed) is not int:
        raise UsageError(f"the run's description has the seed {seed!r}; expected a number")

    def blocks(table: Table, ids: Ids) -> Blocks:
        return initial_blocks(model, table, ids, seed)

    return Origin(tables, blocks)


def _path(model_class: type) -> str:
    return f"{model_class.__module__}:{model_class.__qualname__}"
