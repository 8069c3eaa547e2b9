"""``scarml models``: the built-in models, their hyper-parameters and criteria."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from scarml.storage.json_text import to_json_text

__all__ = ["list_models"]

SCHEMA_VERSION = 1


def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Show the built-in models: hyper-parameters for --set, data sets and criteria, metrics on held-out data."""
    from scarml.models import registry

    described = [_describe(name, registry.model_class(name)) for name in registry.list_models()]
    if as_json:
        print(to_json_text({"schema_version": SCHEMA_VERSION, "models": described}, indent=2))
        return
    for d in described:
        print(f"{d['name']:<6} {d['description']}")
        print("       " + "  ".join(f"--set {k}={v}" for k, v in d["hyper_parameters"].items()))
        for declared in d["data"]:
            where = f"--data {declared['data']}" if declared["data"] else "without data"
            settings = " ".join(f"{k}={v}" for k, v in declared["hyper_parameters"].items())
            print(f"       {where}: converged below loss_sum {declared['stop_loss_sum']:,} {settings}".rstrip())
        if d["metrics"]:
            print(f"       on held-out data: {', '.join(d['metrics'])}")
        print()
    print("A model of your own: scarml train module:Class (see scarml train --help)")


def _describe(name: str, model: type[Any]) -> dict[str, Any]:
    from scarml.models.defaults import Defaults

    metrics = model.metrics  # a property of `Model` where a class has none of its own
    declared: dict[str | None, Defaults] = getattr(model, "defaults", {})
    return {
        "name": name,
        "description": (model.__doc__ or "").strip().splitlines()[0],
        "hyper_parameters": {f.name: f.default for f in dataclasses.fields(model)},
        "data": [
            {"data": data, "stop_loss_sum": d.stop_loss_sum, "hyper_parameters": dict(d.hyper_parameters)}
            for data, d in declared.items()
        ],
        "metrics": [metric.name for metric in metrics] if isinstance(metrics, tuple) else [],
    }
