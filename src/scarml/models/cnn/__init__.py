"""The convolutional network, and training of any torch module in the same way; the only place that imports torch.

Nothing here imports torch before it is used. One file is one concept: `cut` (parameters become blocks), `replica` (a
module on one flat array), `adam` (the step at the server), `training` (all that as a `Model`), and the two models.
"""

from scarml.models.cnn.adam import Adam
from scarml.models.cnn.cnn import CNN
from scarml.models.cnn.torch_model import TorchModel

__all__ = ["CNN", "Adam", "TorchModel"]
