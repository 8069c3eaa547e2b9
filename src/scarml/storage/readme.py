"""What every run folder says about itself to somebody who finds it."""

from __future__ import annotations

__all__ = ["README_TEXT"]

README_TEXT = """\
This folder holds a training run saved by SCAR (Python package scarml).

To go on with it, give its path to the command that made it, with --resume auto.
To see what is in it: scarml inspect <this folder>. To take the parameters out: scarml export <this folder> <file>.

To read the parameters without SCAR: every file in segments/ is a safetensors file,

    from safetensors.numpy import load_file
    tensors = load_file("segments/<name>.safetensors")

For each table W, tensors["W/ids"] says which blocks (rows) are in the file, tensors["W.value"] has their values, in the
same order. File names start with <term>-<commit>; in a file from a compactor each block has its own, in
tensors["W/term"] and tensors["W/commit"]. A block is in many files: take the copy with the highest (term, commit) among
those that count: the files listed in terms/<last term>.base, and the files of that term itself. Other files belong to
timelines that were given up. Values may be stored narrower: see "tables" in a file's metadata, and the page "Storage
format" in the documentation of scarml.

run.json describes the run; events/ is its log, and status.json says how far it is. Nothing here should be edited.
"""
