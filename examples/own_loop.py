"""A training loop of one's own that survives the death of its process: softmax regression on handwritten digits.

From the folder above:

    python examples/own_loop.py                  # Ctrl-C, or kill -9 it, and give the same command again
"""

import sys
import time

import numpy as np

import scarml as scar
from scarml.data.registry import load


def main(run="scar-runs/own-loop", n_iters=2000, batch=500, rate=0.5, momentum=0.9):
    data = load("mnist-10k")
    X, Y = data.features.astype(np.float32) / 255, np.eye(10, dtype=np.float32)[data.labels]
    W, v = np.zeros((X.shape[1], 10), np.float32), np.zeros((X.shape[1], 10), np.float32)
    rng = np.random.default_rng(0)
    state = {"rng": rng.bit_generator.state}

    # A block is a row of W with the same row of its momentum v: what is saved, and restored, together.
    with scar.RunningCheckpoint(run, {"W": scar.rows(W, v=v)}, fraction=1 / 8, interval=8, resume="auto") as ckpt:
        start = ckpt.restore(extra=state)
        rng.bit_generator.state = state["rng"]
        found = ckpt.last_restore
        print(f"begins at iteration {start}; rows are of iterations {found.oldest} to {found.newest}")
        for k in range(start + 1, n_iters + 1):
            rows = rng.choice(len(X), batch, replace=False)
            logits = X[rows] @ W
            P = np.exp(logits - logits.max(axis=1, keepdims=True))
            P /= P.sum(axis=1, keepdims=True)
            v *= momentum
            v -= rate / batch * X[rows].T @ (P - Y[rows])
            W += v
            ckpt.save(k, extra={"rng": rng.bit_generator.state})
            if k % 200 == 0:
                s = ckpt.status()
                right = np.mean((X @ W).argmax(axis=1) == data.labels)
                print(f"{k}: {right:.1%} right; {s.n_saves} saves, {1000 * s.stall_s / k:.2f} ms an iteration")
    return W


if __name__ == "__main__":
    try:
        begun_s = time.perf_counter()
        main(*sys.argv[1:2])
        print(f"done in {time.perf_counter() - begun_s:.1f} s")
    except scar.errors.StoppedError as e:
        print(e)
        sys.exit(75)
