"""Reads what the explorer packs, as its page does, but with NumPy."""

import base64
import json
import re
import zlib
from pathlib import Path

import numpy as np


def decoded(about, blocks):
    """The columns of the page's table by name; "curve" has the bins of each segment, or None.

    A bin is its mean score, its rows and its positives.
    """
    about = json.loads(about)
    texts = json.loads(zlib.decompress(blocks[2]))
    of_rows, of_fits, of_binned, of_bins = about["layouts"]
    number, (some, bins) = about["number"], about["binned"]
    rows = unpacked(blocks[0], (of_rows, number))
    fits = unpacked(blocks[1], (of_fits, number))
    binned = unpacked(blocks[3], (of_binned, some), (of_bins, bins))
    low, high, _ = about["window"]
    made = {
        "segment": np.array(texts, object),
        "rows": rows["rows"],
        "positives": rows["positives"],
        "expected": rows["expected"],
        "excess": rows["positives"] - rows["expected"],
        "q-value": rows["q"],
        "off": rows["off"] == 1,
        "kind": rows["kind"],
        "slope": rows["slope"],
        "fitted rows": fits["fitted"],
        "status": np.array(about["statuses"], object)[fits["status"]],
        "flags": np.array([_flags(about["flags"], bits) for bits in fits["flags"]], object),
        "curve": _curves(number, binned),
    }
    if about["samples"]:
        made["samples"] = np.stack([fits[f"p{i}"] for i in range(about["samples"])], 1)
    else:
        made["A"] = fits["A"]
        made["B"] = fits["level"] - fits["A"].astype(float) * (low + high) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        made["O/E"] = made["positives"] / made["expected"]
    for name in ("steepness", "center", "certainty", "shrinkage"):
        if name in fits:
            made[name] = fits[name]
    assert set(about["meanings"]) <= set(made)
    return made


def of_page(path):
    """The columns of the table of a report."""
    parts = dict(re.findall(r'id="(about|block\d)">(.*?)</script>', Path(path).read_text(), re.S))
    return decoded(parts.pop("about"), [base64.b64decode(x) for _, x in sorted(parts.items())])


def unpacked(block, *layouts):
    """Columns by name: the bytes of a column are in planes, the first byte of each number first."""
    data, start, columns = np.frombuffer(zlib.decompress(block), np.uint8), 0, {}
    for layout, length in layouts:
        for name, dtype in layout:
            width = np.dtype(dtype).itemsize
            planes = data[start : start + width * length].reshape(width, length)
            start += width * length
            assert name not in columns
            columns[name] = np.ascontiguousarray(planes.T).view(f"<{dtype}")[:, 0]
    assert start == len(data)
    return columns


def variance(columns, about, scores):
    """(K, n) variance of each segment's log-odds at some scores."""
    low, high, _ = json.loads(about)["window"]
    u = (scores - (low + high) / 2) / (high - low)
    slope, center, rest = (
        columns[name].astype(float)[:, None] for name in ("steepness", "center", "certainty")
    )
    return slope**2 * (u - center) ** 2 + rest**2


def _flags(known, bits):
    return ", ".join(name for name, bit in known.items() if bits & bit)


def _curves(number, binned):
    curves, start = [None] * number, 0
    for segment, bins in zip(binned["segment"], binned["number"].tolist(), strict=True):
        part = slice(start, start + bins)
        start += bins
        curves[segment] = np.stack([binned[x][part] for x in ("scores", "rows", "positives")], 1)
    assert start == len(binned["rows"])
    return curves
