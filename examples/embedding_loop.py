"""Which rows of an embedding table to save: those that moved most, those used most, or all in turn?

A few rows are in most batches, and most rows in few (Zipf's law), as with words, users and items. Every policy may save
as many rows. Printed is how far what is stored is from the table, on average: what losing the whole table would cost.

From the folder above:

    python examples/embedding_loop.py
"""

from uuid import uuid4

import numpy as np

import scarml as scar

POLICIES = ("priority", "mfu", "ssu", "round", "random")


def distance(policy, batch, n_rows=2000, width=8, n_iters=200):
    """Train; the mean of ‖stored − table‖ from iteration 50 on, and how many rows were saved."""
    rng = np.random.default_rng(0)
    frequency = rng.permutation(1 / np.arange(1.0, n_rows + 1) ** 1.1)
    frequency /= frequency.sum()
    truth = rng.normal(size=(n_rows, width)) / width**0.5
    E, squares = 0.1 * rng.normal(size=(n_rows, width)), np.full(n_rows, 1e-8)
    url, distances, n_saved = f"memory://{uuid4()}", [], 0

    with scar.RunningCheckpoint(url, {"E": E}, policy=policy, fraction=1 / 16, interval=64) as ckpt:
        ckpt.restore()
        for k in range(1, n_iters + 1):
            rows = rng.choice(n_rows, batch, p=frequency)
            features = rng.normal(size=(batch, width))
            target = (truth[rows] * features).sum(axis=1) + 0.3 * rng.normal(size=batch)
            error = (E[rows] * features).sum(axis=1) - target
            used, at = np.unique(rows, return_inverse=True)
            gradient = np.zeros((len(used), width))
            np.add.at(gradient, at, error[:, None] * features)
            squares[used] += np.square(gradient).mean(axis=1)  # AdaGrad, with one rate a row
            E[used] -= 0.1 * gradient / np.sqrt(squares[used])[:, None]

            # Rows that changed are measured, for `priority`; rows that were used are counted, for `mfu` and `ssu`.
            n_saved += ckpt.save(k, touched={"E": used}, used={"E": rows}).n_blocks
            ckpt.wait()  # a real loop would not; here no save shall be skipped
            if k >= 50 and k % 10 == 0:
                distances.append(np.linalg.norm(scar.load(url)["E"]["value"] - E))
    return float(np.mean(distances)), n_saved


def main():
    print("rows used by an iteration | " + " | ".join(POLICIES))
    for batch in (32, 64, 128, 256, 512):
        found = {policy: distance(policy, batch) for policy in POLICIES}
        print(f"{batch} | " + " | ".join(f"{d:.2f} ({n:,} saved)" for d, n in found.values()))


if __name__ == "__main__":
    main()
