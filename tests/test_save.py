"""posenc.save: the library of each format reads the files, written atomically and in bounded memory."""

import errno
import io
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections import Counter

import ml_dtypes
import numpy as np
import pytest

import posenc
from conftest import ENCODING, POSITIONS, assert_same_bits, bytes_to_stdout_and_memory, names, python
from posenc import Encoding

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


@pytest.fixture
def npy(tmp_path):
    return tmp_path / "pe.npy"


def read(path, key="pe"):
    """Return the values that the library of the format reads."""
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".zarr":
        import zarr
        return zarr.open_array(path, mode="r")[:]
    from safetensors.numpy import load_file
    return load_file(path)[key]


# ---- content -----------------------------------------------------------------------------------------------


def test_the_library_of_the_format_reads_the_table(path, dtype):
    size = posenc.save(path, POSITIONS, ENCODING, dtype=dtype)
    assert size == (path.stat().st_size
                    if path.is_file() else sum(chunk.stat().st_size for chunk in path.glob("c/*/*")))
    values = read(path)
    assert path.suffix == ".safetensors" or dtype != "bfloat16" or values.dtype == np.uint16
    expected = posenc.encode(POSITIONS, ENCODING, dtype=dtype)
    assert_same_bits(values.view(expected.dtype), expected)
    assert names(path.parent) == [path.name]


@pytest.mark.parametrize("rows, d_model", [(0, 8), (0, 0), (5, 0), (1, 1), (2048, 512), (2049, 512)])
def test_tables_of_every_shape(path, rows, d_model):
    posenc.save(path, range(10, 10 + rows), Encoding(d_model))
    assert_same_bits(read(path), posenc.encode(range(10, 10 + rows), d_model))
    assert posenc.open(path).values.shape == (rows, d_model) and posenc.verify(path, range(10, 10 + rows)) == rows


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_npy_files_equal_those_of_numpy(npy, dtype):
    file = io.BytesIO()
    np.save(file, posenc.encode(range(-7, 4000, 3), 33, dtype=dtype))
    posenc.save(npy, range(-7, 4000, 3), Encoding(33), dtype=dtype)
    assert npy.read_bytes() == file.getvalue()


@pytest.mark.parametrize("size", [1, 120, 121, 4096, 10**6])
def test_every_buffer_size_writes_the_same_file(npy, monkeypatch, size):
    monkeypatch.setattr("posenc._encoding.encoding.CHUNK_BYTES", size)
    posenc.save(npy, range(1000, 0, -1), Encoding(30))
    assert_same_bits(np.load(npy), posenc.encode(range(1000, 0, -1), 30))


@pytest.mark.parametrize("key", ["pe", "p" * 30, "ё\n\"'", "embed.weight"])
def test_rows_of_safetensors_are_aligned_to_cache_lines(tmp_path, key):
    safetensors, path = pytest.importorskip("safetensors"), tmp_path / "pe.safetensors"
    posenc.save(path, POSITIONS, ENCODING, dtype="bfloat16", key=key)
    assert (8 + int.from_bytes(path.read_bytes()[:8], "little")) % 64 == 0
    assert_same_bits(read(path, key).view(ml_dtypes.bfloat16),
                     posenc.encode(POSITIONS, ENCODING, dtype="bfloat16"))
    with safetensors.safe_open(path, "np") as file:
        document = json.loads(file.metadata()["posenc"])
    positions = {"start": 50, "stop": -50, "step": -3}
    assert document == ENCODING.to_dict() | {"dtype": "bfloat16", "positions": positions}


def test_progress_counts_every_byte_of_the_table(path):
    for function, arguments in ((posenc.save, (5000, Encoding(512))), (posenc.verify, ())):
        steps = []
        function(path, *arguments, progress=steps.append)
        assert sum(steps) == 5000 * 512 * 4


def test_names_may_be_254_bytes_long(tmp_path):
    name = "é" * 125 + ".npy"
    posenc.save(tmp_path / name, 3, Encoding(4))
    assert names(tmp_path) == [name]


# ---- calls of the system -----------------------------------------------------------------------------------


def test_optional_system_calls_may_be_missing(npy, monkeypatch):
    def refuse(*args):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    for name in ("posix_fallocate", "posix_fadvise"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(os, "link", refuse)
    posenc.save(npy, 1000, Encoding(64))
    assert_same_bits(np.load(npy), posenc.encode(1000, 64))
    with pytest.raises(FileExistsError):
        posenc.save(npy, 1000, Encoding(64))
    assert names(npy.parent) == ["pe.npy"]


def test_a_folder_without_read_permission_is_accepted(npy, monkeypatch):
    system_open = os.open

    def refuse(path, flags, *mode, **keywords):
        if str(path) == str(npy.parent):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return system_open(path, flags, *mode, **keywords)

    monkeypatch.setattr(os, "open", refuse)
    posenc.save(npy, 3, Encoding(4))
    assert names(npy.parent) == ["pe.npy"]


@POSIX
def test_permissions_follow_the_umask(path):
    mask = os.umask(0o027)
    try:
        posenc.save(path, 3, Encoding(4))
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640)


@POSIX
@pytest.mark.parametrize("overwrite, publish", [(False, "link"), (True, "replace")])
def test_the_file_is_synced_before_it_is_published(npy, monkeypatch, overwrite, publish):
    calls = []

    def record(name, describe):
        function = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args: calls.append(describe(*args)) or function(*args))

    record("fsync", lambda fd: "sync folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "sync file")
    record(publish, lambda *paths: "publish")
    posenc.save(npy, 3, Encoding(4), overwrite=overwrite)
    assert calls == ["sync file", "publish", "sync folder"]


# ---- existing files ----------------------------------------------------------------------------------------


def test_existing_files_are_kept_unless_overwrite_is_true(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    for n in (3, 4):
        posenc.save(path.name, n, ENCODING, overwrite=n == 4)
        with pytest.raises(FileExistsError, match="overwrite=True replaces it") as refused:
            posenc.save(path.name, 9, ENCODING)
        assert refused.value.filename == path.name and len(read(path)) == n
    assert names(path.parent) == [path.name]


@pytest.mark.parametrize("path", ["npy", "safetensors"], indirect=True)
@pytest.mark.parametrize("links", [True, False])
def test_files_created_during_the_write_are_kept(path, monkeypatch, links):
    if not links:
        monkeypatch.delattr(os, "link")
    with pytest.raises(OSError, match=r"File exists.*pe\."):
        posenc.save(path, 3, ENCODING, progress=lambda size: path.write_text("precious"))
    assert path.read_text() == "precious" and names(path.parent) == [path.name]


@POSIX
def test_a_symbolic_link_is_kept(path):
    real = path.parent / "elsewhere" / path.name
    real.parent.mkdir()
    path.symlink_to(real)
    for n in (3, 5):
        posenc.save(path, n, ENCODING, overwrite=n == 5)
        with pytest.raises(FileExistsError):
            posenc.save(path, 9, ENCODING)
        assert path.is_symlink() and len(read(real)) == n
    assert names(real.parent) == [path.name]


@POSIX
def test_overwrite_replaces_only_files(tmp_path):
    (tmp_path / "folder.npy").mkdir()
    os.mkfifo(tmp_path / "fifo.npy")
    for name in names(tmp_path):
        with pytest.raises(OSError, match=name):
            posenc.save(tmp_path / name, 3, Encoding(4), overwrite=True)
    assert names(tmp_path) == ["fifo.npy", "folder.npy"]


# ---- failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["__metadata__", os.fsdecode(b"\xff"), 5])
def test_invalid_keys_are_refused(tmp_path, key):
    with pytest.raises(TypeError if key == 5 else ValueError, match="key is "):
        posenc.save(tmp_path / "pe.safetensors", 3, ENCODING, key=key)
    assert names(tmp_path) == []


def test_a_missing_folder_is_reported(path):
    absent = path.parent / "absent" / path.name
    with pytest.raises(FileNotFoundError) as caught:
        posenc.save(absent, 3, Encoding(4))
    assert caught.value.filename == str(absent) and names(path.parent) == []


@POSIX
@pytest.mark.parametrize("path", ["npy"], indirect=True)
def test_a_full_disk_is_reported_before_values_are_computed(path, monkeypatch):
    def allocate(fd, offset, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", allocate, raising=False)
    with pytest.raises(OSError, match="No space left on device") as caught:
        posenc.save(path, 32, Encoding(8), progress=lambda size: pytest.fail("rows were written"))
    assert caught.value.filename == str(path) and names(path.parent) == []


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="requires posix_fallocate")
@pytest.mark.parametrize("rows", [2**50, 2**62])
def test_a_size_beyond_the_file_system_is_reported_at_once(npy, rows):
    with pytest.raises(OSError) as caught:
        posenc.save(npy, rows, Encoding(8), progress=lambda size: pytest.fail("rows were written"))
    assert caught.value.errno in (errno.EFBIG, errno.ENOSPC) and names(npy.parent) == []


@pytest.mark.parametrize("path", ["npy", "safetensors"], indirect=True)
@pytest.mark.parametrize("rows", [0, 10])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError(errno.EIO, "Input/output error")])
def test_any_exception_leaves_the_old_file_or_none(path, error, rows):
    if rows:
        posenc.save(path, rows, ENCODING)

    def fail(size):
        assert len(names(path.parent)) == 1 + bool(rows)
        raise error

    with pytest.raises(error if isinstance(error, type) else type(error)):
        posenc.save(path, 20, ENCODING, overwrite=True, progress=fail)
    assert names(path.parent) == [path.name][:rows] and (not rows or len(read(path)) == rows)


# Each test runs the command line in another process.
MAIN = "import sys; from posenc import _cli; sys.exit(_cli.main(sys.argv[1:]))"
LIMITED = """
    import os, resource, sys
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))
    if sys.argv.pop() == "allocation":
        del os.posix_fallocate
    """ + MAIN


@POSIX
@pytest.mark.parametrize("path", ["npy", "safetensors"], indirect=True)
@pytest.mark.parametrize("without", ["nothing", "allocation"])
def test_a_limited_file_size_leaves_no_file(path, without):
    """RLIMIT_FSIZE simulates a full disk: the allocation fails, or a write is short, and the next fails."""
    done = subprocess.run(python(LIMITED, "generate", 10_000, 512, "-o", path, without), capture_output=True,
                          text=True)
    message = f"posenc: error: {path}: {os.strerror(errno.EFBIG)}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)
    assert names(path.parent) == []


@POSIX
def test_read_only_files_and_folders_are_kept(npy):
    """root ignores permissions unless it drops its privileges."""
    drop = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    npy.write_text("old")
    cases = (npy, 0o444, ["--force"], "The file is read-only"), (npy.parent, 0o555, ["--force"],
                                                                 os.strerror(errno.EACCES))
    for protected, mode, options, message in (*cases, (npy.parent, 0o555, [], os.strerror(errno.EACCES))):
        path = npy if options else npy.parent / "new.npy"
        before = protected.stat().st_mode
        protected.chmod(mode)
        try:
            command = [*drop, *python(MAIN, "generate", 10, 8, "-o", path, *options)]
            done = subprocess.run(command, capture_output=True, text=True)
        finally:
            protected.chmod(before)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"posenc: error: {path}: {message}\n")
        assert names(npy.parent) == ["pe.npy"] and npy.read_text() == "old"


# ---- processes that are interrupted ------------------------------------------------------------------------

# Write a table of 20 MB; the write waits until the standard input is closed.
WAITING_WRITER = """
    import sys, posenc
    encode = posenc.Encoding.encode
    def wait(*arguments, **keywords):
        sys.stdin.read()
        return encode(*arguments, **keywords)
    posenc.Encoding.encode = wait
    """ + MAIN


def start_writing(path):
    """Return a process that has begun to write; the write continues when its standard input is closed."""
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    process = subprocess.Popen(python(WAITING_WRITER, "generate", 10_000, 512, "-o", path, "--force"),
                               **pipes, text=True)
    deadline = time.monotonic() + 30
    # not earlier: the folder is removed once Python knows of it
    while not any(path.parent.glob(".*.tmp/*")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)
    return process


@POSIX
def test_a_folder_deleted_during_the_write_is_reported(tmp_path):
    path = tmp_path / "folder" / "pe.npy"
    path.parent.mkdir()
    process = start_writing(path)
    shutil.rmtree(path.parent)
    _, stderr = process.communicate(timeout=20)
    assert (process.returncode, stderr) == (1, f"posenc: error: {path}: {os.strerror(errno.ENOENT)}\n")
    assert names(tmp_path) == []


@POSIX
@pytest.mark.usefixtures("heard_signals")
@pytest.mark.parametrize("path, number, code, rows", [
    ("npy", "SIGINT", 130, 0), ("npy", "SIGTERM", 143, 10), ("npy", "SIGKILL", -9, 10),
    ("safetensors", "SIGHUP", 129, 0), ("safetensors", "SIGKILL", -9, 0),
], indirect=["path"])
def test_a_signal_leaves_the_old_file_or_none(path, number, code, rows):
    if rows:
        posenc.save(path, rows, ENCODING)
    process = start_writing(path)
    process.send_signal(getattr(signal, number))
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == code and "Traceback" not in stderr
    files = names(path.parent)
    if number == "SIGKILL":             # a temporary folder is left, and ignored
        assert files.pop(0).startswith(f".{path.name}.")
    assert files == [path.name][:rows] and (not rows or len(read(path)) == rows)
    posenc.save(path, 3, ENCODING, overwrite=True)


@POSIX
@pytest.mark.long
@pytest.mark.usefixtures("heard_signals")
@pytest.mark.parametrize("number, times", [("SIGKILL", 200), ("SIGINT", 20), ("SIGTERM", 20)])
def test_signals_at_any_moment_leave_no_partial_file(tmp_path, number, times):
    """The file is absent or complete; after a signal other than SIGKILL, no temporary file is left."""
    path, found = tmp_path / "pe.npy", Counter()
    command = [sys.executable, "-m", "posenc", "generate", "100_000", "512", "-o", str(path), "--force"]
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    duration, content = time.monotonic() - begin, path.read_bytes()
    for _ in range(times):
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.1, 1.2) * duration)
        process.send_signal(getattr(signal, number))
        process.wait(timeout=20)
        duration *= 0.9 if path.exists() else 1.1        # adapt to the load of the system
        assert not path.exists() or path.read_bytes() == content
        found[path.exists(), bool(names(tmp_path))] += 1
    assert number == "SIGKILL" or not found[False, True]
    # the signals must be spread over the whole run
    assert min(found[True, True], found[False, False], found[False, True]
               if number == "SIGKILL" else times) > times / 20


@POSIX
@pytest.mark.long
def test_two_gigabytes_take_bounded_memory(path):
    for command in (["generate", "1_000_000", "512", "-o", path], ["verify", path]):
        assert bytes_to_stdout_and_memory(*command)[1] < 150e6
    shutil.rmtree(path.parent)


@POSIX
@pytest.mark.parametrize("magnitude, columns", [(0.3, 2**18), (290, 2**15)])
def test_verify_takes_at_most_2500_bytes_per_column(tmp_path, magnitude, columns):
    path, peaks = tmp_path / "pe.safetensors", []
    for number in (4, columns):
        periods = 10.0 ** np.random.default_rng(0).uniform(-magnitude, magnitude, number // 2)     # all are stored
        posenc.save(path, range(3), posenc.Encoding(periods=periods), overwrite=True)
        peaks.append(bytes_to_stdout_and_memory("verify", path)[1])
    assert 400 < (peaks[1] - peaks[0]) / columns < 2500         # the first bound shows that it is measured
