"""Read a run's parameters without SCAR: with json, NumPy and safetensors (docs/storage-format.md says all of it).

    python examples/read_with_safetensors_alone.py RUN-FOLDER

Prints for each table how many blocks were found, and from which iterations. Damaged blocks and files are left out.
"""

import json
import sys
import zlib
from pathlib import Path

import numpy as np
from safetensors import safe_open


def read_run(folder):
    """Per table: ids, versions (term, commit, save, iteration) and fields; ragged fields as a list of arrays."""
    folder = Path(folder)
    newest = {}
    for path in visible_segments(folder):
        try:
            tables = read_segment(path)
        except Exception as e:  # noqa: BLE001 - whatever is wrong with a file: older copies of its blocks count
            print(f"{path.name} is left out: {e}", file=sys.stderr)
            continue
        for table, rows in tables.items():
            for block, version, fields in rows:
                if block not in newest.setdefault(table, {}) or newest[table][block][0] <= version:
                    newest[table][block] = version, fields
    return {table: as_arrays(blocks) for table, blocks in newest.items()}


def visible_segments(folder):
    """Plain ones first: of two copies of one version, either will do."""
    term = max(int(p.stem) for p in (folder / "terms").glob("*.base"))
    base = set(json.loads((folder / f"terms/{term:08d}.base").read_text())["segments"])
    paths = sorted((folder / "segments").glob("*.safetensors"))
    return [p for p in paths if f"segments/{p.name}" in base or p.name.startswith(f"{term:08d}-")]


def read_segment(path):
    """Per table the good rows: (id, version, fields)."""
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    about, found = json.loads(metadata["segment"]), {}
    for table in json.loads(metadata["tables"]):
        name, ids = table["name"], tensors[table["name"] + "/ids"]
        index = [tensors[f"{name}/{k}"] for k in ("ids", "lengths", "term", "commit", "iteration", "save")
                 if f"{name}/{k}" in tensors]  # fmt: skip
        if crc32(index) != table["index_crc32"]:
            raise ValueError(f"the index of {name} is damaged")
        if "newest" in about:
            columns = [tensors[f"{name}/{k}"].tolist() for k in ("term", "commit", "save", "iteration")]
            versions = list(zip(*columns, strict=True))
        else:
            versions = [tuple(about[k] for k in ("term", "commit", "save_id", "iteration"))] * len(ids)
        fields = {f["name"]: read_field(tensors, name, f, len(ids)) for f in table["fields"]}
        found[name] = [
            (int(block), versions[i], {key: values[i] for key, (values, _) in fields.items()})
            for i, block in enumerate(ids)
            if tensors[f"{name}/crc32"][i]
            == crc32([block.astype("<u8"), *(p for _, raw in fields.values() for p in raw[i])])
        ]
    return found


def read_field(tensors, table, field, n):
    """Per block its values, and the bytes that are stored of it."""
    stored, encoding = tensors[f"{table}.{field['name']}"], field["encoding"]
    counts = tensors[f"{table}/lengths"].astype(int) if field["ragged"] else np.full(n, int(np.prod(field["shape"])))
    bits = int(encoding[7:]) if encoding.startswith("packed-") else None
    sizes = counts if bits is None else (counts * bits + 7) // 8
    parts = np.split(stored.reshape(-1), np.cumsum(sizes)[:-1]) if n else []
    scales = tensors[field["scales"]] if field["scales"] else None
    values, raw = [], []
    for i, part in enumerate(parts):
        raw.append([part] if scales is None else [scales[i], part])
        if encoding == "int8":
            part = part * scales[i].astype(field["dtype"])
        elif encoding in ("mxint8", "mxfp8"):
            numbers = part if encoding == "mxint8" else (part.astype(np.uint16) << 8).view(np.float16)
            part = numbers.astype(float) * (np.nan if scales[i] == 255 else 2.0 ** (int(scales[i]) - 127))
        elif encoding == "bfloat16":
            part = (part.astype(np.uint32) << 16).view(np.float32)
        elif bits is not None:
            ones = np.unpackbits(part, bitorder="little")[: counts[i] * bits].reshape(counts[i], bits)
            part = ones.astype(np.int64) @ (1 << np.arange(bits))
        elif encoding not in ("plain", "float32"):
            raise ValueError(f"the encoding {encoding} is not known here")
        part = part.astype(field["dtype"])
        values.append(part if field["ragged"] else part.reshape(field["shape"]))
    return values, raw


def as_arrays(blocks):
    ids = sorted(blocks)
    fields = {}
    for name in blocks[ids[0]][1] if ids else ():
        values = [blocks[i][1][name] for i in ids]
        fields[name] = np.stack(values) if len({v.shape for v in values}) == 1 else values
    return {"ids": ids, "versions": [blocks[i][0] for i in ids], "fields": fields}


def crc32(parts):
    crc = 0
    for part in parts:
        crc = zlib.crc32(np.ascontiguousarray(part).tobytes(), crc)
    return crc


if __name__ == "__main__":
    for table, found in read_run(sys.argv[1]).items():
        iterations = [v[3] for v in found["versions"]]
        print(f"{table}: {len(iterations)} blocks, from iterations {min(iterations)} to {max(iterations)}")
