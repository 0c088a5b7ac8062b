"""Files that were cut, changed or made to harm, processes killed or interrupted at a bad moment."""

import io
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
import timeit
import tracemalloc
import zipfile

import numpy as np
import pytest
from made_up import calibrators, same

import platt_jax as pj
from platt_jax.results.fingerprint import fingerprint


def saved(calibrator, path):
    pj.save(path, calibrator)
    return path.read_bytes()


def load_bytes(path, content):
    path.write_bytes(content)
    return pj.load(path)


def refuse(path, content, message="not a calibrator"):
    """ValueError, soon, and without memory for what the content only claims."""
    path.write_bytes(content)

    def read():
        with pytest.raises(ValueError, match=message):
            pj.load(path)

    # One after the other: to trace an allocation takes longer than to make it. Of this thread, and
    # without collections of garbage, which take a second among the objects of all tests.
    seconds = timeit.timeit(read, timer=time.thread_time, number=1)
    tracemalloc.start()
    try:
        read()
        memory = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seconds < 1
    assert memory < 16 * len(content) + 2**20


# --- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Sigmoid", "Fit", "SegmentCalibrator", "OneVsRestCalibrator"])
def test_a_file_cut_anywhere_is_refused(tmp_path, kind):
    path = tmp_path / "file.npz"
    whole = saved(calibrators()[kind], path)
    for length in reversed(range(len(whole))):
        os.truncate(path, length)
        with pytest.raises(ValueError, match="not a calibrator"):
            pj.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Sigmoid", "SegmentCalibrator"])
def test_a_flipped_bit_is_refused_or_means_nothing(tmp_path, kind):
    """Every bit of a small file, one bit of every byte of a larger one."""
    calibrator = calibrators()[kind]
    whole = saved(calibrator, tmp_path / "file.npz")
    refused = 0
    with open(tmp_path / "file.npz", "r+b", buffering=0) as file:
        for place in range(len(whole)):
            for bit in range(8) if kind == "Sigmoid" else [place % 8]:
                file.seek(place)
                file.write(bytes([whole[place] ^ 1 << bit]))
                try:
                    assert same(pj.load(tmp_path / "file.npz"), calibrator)
                except ValueError:
                    refused += 1
            file.seek(place)
            file.write(whole[place : place + 1])
    assert refused > len(whole) / 2


# --- malice ------------------------------------------------------------------------------------

HEADER = {"format": "platt_jax calibrator", "version": 1, "kind": "Sigmoid"}
HEADER["fingerprint"] = fingerprint(pj.Sigmoid(1.0, 1.0))


def npy(header, values=b""):
    """A .npy with this text for a header."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + values


def described(dtype="<f8", shape="()"):
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"


def as_npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive(compression=zipfile.ZIP_STORED, **members):
    """A Sigmoid's .npz, with members put in the place of its own; None leaves one out."""
    one = as_npy(np.array(1.0))
    members = {"header": as_npy(np.array(json.dumps(HEADER))), "A": one, "B": one, **members}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as out:
        for name, content in members.items():
            if content is not None:
                out.writestr(f"{name}.npy", content)
    return file.getvalue()


def with_sizes(content, name, size):
    """The archive with another size of this member in its central directory."""
    entry = content.index(b"PK\1\2")
    while content[entry + 46 :].find(name.encode()) != 0:
        entry = content.index(b"PK\1\2", entry + 1)
    return content[: entry + 20] + struct.pack("<2I", size, size) + content[entry + 28 :]


def test_the_archives_made_here_are_fine_but_for_what_is_wrong_with_them(tmp_path):
    one = pj.Sigmoid(np.array(1.0), np.array(1.0))
    plain = archive()
    values = struct.pack("<d", 1.0)
    size = len(as_npy(np.array(1.0)))
    for content in (plain, archive(A=npy(described(), values)), with_sizes(plain, "A.npy", size)):
        assert same(load_bytes(tmp_path / "file.npz", content), one)


def test_sizes_that_are_only_claimed(tmp_path):
    zeros = as_npy(np.zeros(1_000_000))
    eight = struct.pack("<d", 1.0)
    for content in (
        archive(zipfile.ZIP_DEFLATED),
        archive(zipfile.ZIP_DEFLATED, A=zeros),
        archive(zipfile.ZIP_BZIP2, A=zeros),
        archive(zipfile.ZIP_LZMA, A=zeros),
        with_sizes(archive(), "A.npy", 2**32 - 2),
        with_sizes(archive(), "A.npy", 2**31),
        with_sizes(archive(), "header.npy", 400),
        archive(A=npy(described(shape=f"({2**60},)"), eight)),
        archive(A=npy(described(shape=f"({2**40}, {2**40})"), eight)),
        archive(A=npy(described(shape=f"({2**64},)"), eight)),
        archive(A=npy(described(shape=f"({2**62}, 0)"))),
        archive(A=npy(described(), eight + eight)),
        archive(A=npy(described(), eight[:-1])),
        archive(A=npy(described(), eight).replace(b"\x00{", b"\xff{")),  # header's length
        archive(A=npy(described(shape="(-1,)"), eight)),
        archive(A=npy(described(shape=f"({'9' * 5000},)"), eight)),
        archive(A=npy(described(shape=f"({'1, ' * 100})"), eight)),
        archive(A=npy(described(shape="(1,)" + " " * 60_000), eight)),
        archive(A=npy(described("<U1000000", "(0,)"))),
        archive(A=npy(described("<U1000000"), eight)),
        archive(A=npy(described("<U999999999"), eight)),
        archive(A=npy(described("<U0", f"({2**50},)"))),
        archive(A=npy(described("|S0", f"({2**50},)"))),
        archive(A=as_npy(np.zeros(2)), B=as_npy(np.zeros(1))),
        archive(header=as_npy(np.array(json.dumps(HEADER) + " " * 1_000_000))),
        archive(header=as_npy(np.array("[" * 1_000_000))),
        archive(header=as_npy(np.array([json.dumps(HEADER)] * 2))),
    ):
        refuse(tmp_path / "file.npz", content)


def test_members_that_share_their_bytes(tmp_path):
    """Few bytes read many times over would be as large as a bomb."""
    plain = archive()
    member = plain.index(b"PK\1\2")
    first = plain[member : plain.index(b"PK\1\2", member + 1)]
    end = plain.index(b"PK\5\6")
    copies = 5000
    directory = first * copies + plain[member + len(first) : end]
    entries = copies + 2
    tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, entries, entries, len(directory), member, 0)
    refuse(tmp_path / "file.npz", plain[:member] + directory + tail)
    # One name twice, and two names of one large member.
    twice = archive(C=as_npy(np.array(2.0)))
    refuse(tmp_path / "file.npz", twice.replace(b"C.npy", b"A.npy"))
    large = archive(A=as_npy(np.zeros(1000)), C=as_npy(np.zeros(1000)))
    place = large.index(b"A.npy", large.index(b"PK\1\2"))
    offset = large[place - 4 : place]
    other = large.index(b"C.npy", large.index(b"PK\1\2"))
    refuse(tmp_path / "file.npz", large[: other - 4] + offset + large[other:])


def test_text_that_numpy_would_evaluate(tmp_path):
    eight = struct.pack("<d", 1.0)
    for header in (
        "(" * 9000,
        "-" * 9000 + "1",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1L,), }",  # Python 2's: a warning
        "{'descr': '<f8', 'fortran_order': 0, 'shape': (), }",
        "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (), }",
        "{'descr': '|V8', 'fortran_order': False, 'shape': (), }",
        "{'descr': '<M8[nonsense]', 'fortran_order': False, 'shape': (), }",
        "{'descr': '<f7', 'fortran_order': False, 'shape': (), }",
        "",
    ):
        refuse(tmp_path / "file.npz", archive(A=npy(header, eight)))


def test_pickles_are_not_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    trap = pickle.dumps(Trap())
    objects = io.BytesIO()
    np.save(objects, np.array([Trap()], object))
    for content in (
        trap,
        objects.getvalue(),
        archive(A=trap),
        archive(A=npy(described("|O"), trap)),
        archive(A=objects.getvalue()),
        archive(header=npy(described("|O"), trap)),
        archive(header=objects.getvalue()),
    ):
        refuse(tmp_path / "file.npz", content)
    assert not (tmp_path / "executed").exists()


def test_a_newer_version_is_named_whatever_else_it_holds(tmp_path):
    header = as_npy(np.array(json.dumps({**HEADER, "version": 99, "kind": "Ensemble"})))
    refuse(tmp_path / "file.npz", archive(header=header, C=b"new"), "newer platt_jax as version 99")
    for version in (0, -1, 1.0, True, None, "1"):
        header = as_npy(np.array(json.dumps({**HEADER, "version": version})))
        refuse(tmp_path / "file.npz", archive(header=header))


def test_arrays_that_make_no_calibrator(tmp_path):
    """Each would load by its shape and type, and fail when it is used."""
    path = tmp_path / "file.npz"
    bad_text = np.array(["a", "b"]).view(np.uint32) + np.uint32(2**31)
    for kind, changes in (
        ("Fit", {"status": np.array([0, 1 + max(pj.Status)])}),
        ("Fit", {"status": np.array([-1, 0])}),
        ("Fit", {"flags": np.array([2 * max(pj.Flag), 0])}),
        ("Fit", {"iterations": np.array([1, -1])}),
        ("Fit", {"gradient": np.zeros((2, 3))}),
        ("Fit", {"C": np.zeros(2)}),
        ("SegmentCalibrator", {"keys": np.array(["b", "a"])}),
        ("SegmentCalibrator", {"keys": np.array(["a", "a"])}),
        ("SegmentCalibrator", {"keys": bad_text.view("<U1")}),
        ("SegmentCalibrator", {"keys": np.array([0, 2], np.uint8).view(bool)}),
        ("SegmentCalibrator", {"keys": np.array([["a", "b"]])}),
        ("SegmentCalibrator", {"fallback_A": np.zeros(2)}),
        ("SegmentCalibrator", {"fallback_covariance": np.zeros(2)}),
        ("OneVsRestCalibrator", {"classes": np.array([3, 3])}),
        ("OneVsRestCalibrator", {"classes": np.arange(3)}),
    ):
        pj.save(path, calibrators()[kind])
        with np.load(path) as file:
            arrays = dict(file)
        assert load_bytes(path, npz(arrays)) is not None
        refuse(path, npz({**arrays, **changes}))
    none = {name: array[:0] for name, array in arrays.items() if array.ndim}
    refuse(path, npz({**arrays, **none}))


@pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing")
@pytest.mark.parametrize("weight", [1e308, np.nan])
def test_a_fit_that_overflowed_is_saved_and_shown(tmp_path, weight):
    """Its counts are infinite."""
    fitted = pj.fit([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1], weights=np.full(4, weight))
    pj.save(tmp_path / "file.npz", fitted)
    loaded = pj.load(tmp_path / "file.npz")
    assert same(loaded, fitted)
    assert "1 NON_FINITE" in repr(loaded) and "NON_FINITE" in loaded._repr_html_()


def npz(arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs /dev/zero")
def test_a_device_that_never_ends():
    with pytest.raises(ValueError, match="not a calibrator"):
        pj.load("/dev/zero")


# --- killed, interrupted -----------------------------------------------------------------------

SAVE_UNTIL_KILLED = """
import os, random, signal, sys, time
import numpy as np
import platt_jax as pj

path = sys.argv[1]
old, new = (pj.Sigmoid(np.full(300_000, x), np.full(300_000, x)) for x in (1.0, 2.0))
pj.save(path, old)
random.seed(0)
for _ in range(30):
    child = os.fork()
    if not child:
        while True:
            pj.save(path, new)
            pj.save(path, old)
    time.sleep(random.uniform(0.001, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = pj.load(path)
    assert any(np.array_equal(found.A, x.A) and np.array_equal(found.B, x.B) for x in (old, new))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.slow
def test_a_save_killed_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", SAVE_UNTIL_KILLED, str(tmp_path / "file.npz")]
    subprocess.run(command, check=True, timeout=60)
    partial = [name for name in os.listdir(tmp_path) if name != "file.npz"]
    assert partial, "no save was under way when it was killed: make the arrays larger"
    assert all(name.startswith(".platt-jax-") for name in partial)


def test_a_save_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "file.npz"
    path.write_text("precious")

    def full(descriptor):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        pj.save(path, pj.Sigmoid(-1.0, 0.0))
    assert path.read_text() == "precious" and os.listdir(tmp_path) == ["file.npz"]


def test_a_name_as_long_as_names_may_be(tmp_path):
    path = tmp_path / ("x" * 255)
    pj.save(path, pj.Sigmoid(-1.0, 0.0))
    assert pj.load(path).A == -1.0


FIT_FOR_LONG = """
import signal
import time
import jax
import numpy as np
import platt_jax as pj

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the parent does with it
rng = np.random.default_rng(0)
labels = rng.random(20_000) < 0.3
scores = rng.normal(size=20_000) + labels
few, many = (np.broadcast_to(scores, (n, 20_000)) for n in (100, 50_000))  # of few bytes
before = pj.fit(few, labels)
print("started", flush=True)
try:
    pj.fit(many, labels)
except KeyboardInterrupt:
    print(time.time(), flush=True)
after = pj.fit(few, labels)
same = all(a.tobytes() == b.tobytes() for a, b in zip(*map(jax.tree.leaves, (before, after))))
print("usable" if same and not jax.config.jax_enable_x64 else "broken", flush=True)
"""


@pytest.mark.slow
def test_an_interrupt_stops_a_long_fit_within_a_chunk():
    """And what runs after it gives the same bits as before."""
    command = [sys.executable, "-c", FIT_FOR_LONG]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "started\n"
        time.sleep(0.5)  # past the checks of the arguments
        interrupted = time.time()
        process.send_signal(signal.SIGINT)
        stopped = float(process.stdout.readline())
        assert process.stdout.readline() == "usable\n"
    assert process.returncode == 0
    assert stopped - interrupted < 1
