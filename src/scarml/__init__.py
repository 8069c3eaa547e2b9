"""SCAR: fault tolerance for iterative-convergent machine learning.

Iterative training corrects its own errors. So when a machine dies, restore only what was lost (partial recovery), from
a running checkpoint that keeps saving the parameters that changed most (priority checkpoints).

    import scarml as scar
    result = scar.Job(scar.MLR(), data="mnist-10k", servers=4, workers=2, run="runs/first").run()

After Qiao, Aragam, Zhang and Xing, "Fault Tolerance in Iterative-Convergent Machine Learning", arXiv 1810.07354.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from scarml.checkpoint.selection import Checkpoint as Checkpoint
    from scarml.control.history import Record as Record
    from scarml.control.stop import Stop as Stop
    from scarml.core.block import Blocks as Blocks
    from scarml.core.block import Field as Field
    from scarml.core.block import Table as Table
    from scarml.core.metric import Metric as Metric
    from scarml.core.model import ALL as ALL
    from scarml.core.model import Computed as Computed
    from scarml.core.model import Context as Context
    from scarml.core.model import Model as Model
    from scarml.core.model import Shard as Shard
    from scarml.core.model import Update as Update
    from scarml.core.sequential import Sequential as Sequential
    from scarml.engine.fault_plan import Kill as Kill
    from scarml.engine.ray.connection import RayCluster as RayCluster
    from scarml.errors import ScarError as ScarError
    from scarml.job import Job as Job
    from scarml.models.cnn import CNN as CNN
    from scarml.models.cnn import Adam as Adam
    from scarml.models.cnn import TorchModel as TorchModel
    from scarml.models.lda import LDA as LDA
    from scarml.models.lda_topics import Topics as Topics
    from scarml.models.mf import MF as MF
    from scarml.models.mlr import MLR as MLR
    from scarml.models.qp import QP as QP
    from scarml.result import Result as Result
    from scarml.running_checkpoint.load import load as load
    from scarml.running_checkpoint.running_checkpoint import RunningCheckpoint as RunningCheckpoint
    from scarml.running_checkpoint.tables import ragged as ragged
    from scarml.running_checkpoint.tables import rows as rows

_HOME_OF = {
    "ALL": "core.model",
    "Adam": "models.cnn",
    "Blocks": "core.block",
    "CNN": "models.cnn",
    "Checkpoint": "checkpoint.selection",
    "Computed": "core.model",
    "Context": "core.model",
    "Field": "core.block",
    "Job": "job",
    "Kill": "engine.fault_plan",
    "LDA": "models.lda",
    "MF": "models.mf",
    "MLR": "models.mlr",
    "Metric": "core.metric",
    "Model": "core.model",
    "QP": "models.qp",
    "RayCluster": "engine.ray.connection",
    "Record": "control.history",
    "Result": "result",
    "RunningCheckpoint": "running_checkpoint.running_checkpoint",
    "ScarError": "errors",
    "Sequential": "core.sequential",
    "Shard": "core.model",
    "Stop": "control.stop",
    "Table": "core.block",
    "Topics": "models.lda_topics",
    "TorchModel": "models.cnn",
    "Update": "core.model",
    "load": "running_checkpoint.load",
    "ragged": "running_checkpoint.tables",
    "rows": "running_checkpoint.tables",
}
_PACKAGES = ("core", "data", "errors", "experiments", "testing", "theory")

__all__ = sorted([*_HOME_OF, *_PACKAGES, "__version__"])


def __getattr__(name: str) -> Any:
    """Load on first use, so that ``import scarml`` costs nothing."""
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f"scarml.{_HOME_OF[name]}"), name)
    elif name in _PACKAGES:
        value = importlib.import_module(f"scarml.{name}")
    else:
        raise AttributeError(f"module 'scarml' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
