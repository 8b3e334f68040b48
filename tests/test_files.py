"""Files are written atomically, with the expected bytes, in bounded memory."""

import errno
import io
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import tokenize

import numpy as np
import pytest

import posenc
from conftest import names, python
from posenc._files import atomic, npy, table
from posenc._files.files import opened_table
from posenc._files.specification import Specification, itemsize

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


def write_npy(path, encoding, positions, dtype="float32", **keywords):
    return posenc.save(path, positions, encoding, dtype=dtype, **keywords)


def header(rows, d_model, dtype):
    return npy.header(Specification(range(rows), posenc.Encoding(d_model), dtype))


# Write a table of 200 MB slowly, so that a test can interrupt the program.
PAUSING_WRITER = """
    import sys
    from posenc import _cli
    from posenc._files import table
    blocks = table.blocks
    def pausing(*args):
        for block in blocks(*args):
            sys.stdin.read()        # returns at once after the end of the input
            yield block
    table.blocks = pausing
    sys.exit(_cli.main(["generate", "10_000", "512", *sys.argv[1:]]))
    """


def start_writing(folder, *args):
    """Return a process that has begun to write folder/pe.npy; the write continues when its standard input is closed."""
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(python(PAUSING_WRITER, "-o", folder / "pe.npy", *args), **pipes, text=True)
    deadline = time.monotonic() + 30
    while not any(name.endswith(".tmp") for name in names(folder)):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)
    return process


# ---- content --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_files_equal_those_of_numpy_save(tmp_path, dtype):
    enc, positions = posenc.Encoding(33, base=500.0), range(-7, 4000, 3)
    saved = io.BytesIO()
    np.save(saved, enc.encode(positions, dtype=dtype))
    assert write_npy(tmp_path / "pe.npy", enc, positions, dtype) == len(saved.getvalue())
    assert (tmp_path / "pe.npy").read_bytes() == saved.getvalue()
    assert names(tmp_path) == ["pe.npy"]


def test_bfloat16_is_stored_as_uint16(tmp_path):
    enc = posenc.Encoding(8)
    write_npy(tmp_path / "pe.npy", enc, range(50), "bfloat16")
    expected = enc.encode(50, dtype="bfloat16", out=np.empty((50, 8), np.uint16))
    loaded = np.load(tmp_path / "pe.npy")
    assert loaded.dtype == np.uint16 and (loaded == expected).all()


@pytest.mark.parametrize("rows, d_model", [(0, 8), (0, 0), (5, 0), (1, 1), (1, 512), (2048, 512), (2049, 512), (5000, 511)])
def test_tables_of_every_shape_are_written(tmp_path, rows, d_model):
    enc = posenc.Encoding(d_model)
    size = write_npy(tmp_path / "pe.npy", enc, range(10, 10 + rows))
    assert size == (tmp_path / "pe.npy").stat().st_size
    loaded = np.load(tmp_path / "pe.npy")
    assert loaded.shape == (rows, d_model) and loaded.dtype == np.float32
    assert (loaded == enc.encode(range(10, 10 + rows))).all()


def test_every_buffer_size_writes_the_same_file(tmp_path, monkeypatch):
    enc, positions = posenc.Encoding(30), range(1000, 0, -1)
    expected = enc.encode(positions)
    for size in (1, 120, 121, 4096, 10**6):
        monkeypatch.setattr(table, "BUFFER_BYTES", size)
        write_npy(tmp_path / "pe.npy", enc, positions, overwrite=True)
        assert (np.load(tmp_path / "pe.npy") == expected).all()


def test_clearing_the_cache_does_not_change_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "BUFFER_BYTES", 1 << 14)
    write_npy(tmp_path / "pe.npy", posenc.Encoding(64), range(5000))
    assert (np.load(tmp_path / "pe.npy") == posenc.encode(5000, 64)).all()


def test_optional_system_calls_may_be_missing(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    for name in ("posix_fallocate", "posix_fadvise"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(os, "link", refuse)
    write_npy(tmp_path / "pe.npy", posenc.Encoding(64), range(1000))
    assert (np.load(tmp_path / "pe.npy") == posenc.encode(1000, 64)).all()
    with pytest.raises(FileExistsError):
        write_npy(tmp_path / "pe.npy", posenc.Encoding(64), range(1000))
    assert names(tmp_path) == ["pe.npy"]


def test_a_write_only_folder_is_accepted(tmp_path, monkeypatch):
    opened = os.open

    def refuse(path, flags, *mode, **keywords):
        if str(path) == str(tmp_path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return opened(path, flags, *mode, **keywords)

    monkeypatch.setattr(os, "open", refuse)
    write_npy(tmp_path / "pe.npy", posenc.Encoding(4), range(3))
    assert names(tmp_path) == ["pe.npy"]


def test_progress_counts_every_byte_of_the_table(tmp_path):
    steps = []
    write_npy(tmp_path / "pe.npy", posenc.Encoding(512), range(5000), progress=steps.append)
    assert sum(steps) == 5000 * 512 * 4 and len(steps) == 3


@POSIX
def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_npy(tmp_path / "pe.npy", posenc.Encoding(4), range(3))
    finally:
        os.umask(before)
    assert (tmp_path / "pe.npy").stat().st_mode & 0o777 == 0o640


def test_names_may_be_254_bytes_long(tmp_path):
    name = "é" * 125 + ".npy"
    write_npy(tmp_path / name, posenc.Encoding(4), range(3))
    assert names(tmp_path) == [name]


@POSIX
@pytest.mark.parametrize("overwrite, publish", [(False, "link"), (True, "replace")])
def test_the_file_is_synced_before_it_is_published(tmp_path, monkeypatch, overwrite, publish):
    calls = []

    def record(name, describe):
        function = getattr(os, name)

        def recorded(*args):
            calls.append(describe(*args))
            return function(*args)

        monkeypatch.setattr(os, name, recorded)

    record("fsync", lambda fd: "sync folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "sync file")
    record(publish, lambda *paths: "publish")
    write_npy(tmp_path / "pe.npy", posenc.Encoding(4), range(3), overwrite=overwrite)
    assert calls == ["sync file", "publish", "sync folder"]


def test_errors_show_the_path_that_was_passed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_npy("pe.npy", posenc.Encoding(4), range(3))
    with pytest.raises(FileExistsError) as caught:
        write_npy("pe.npy", posenc.Encoding(4), range(3))
    assert caught.value.filename == "pe.npy"


# ---- existing files -------------------------------------------------------------------------------------------------


def test_existing_files_are_not_overwritten(tmp_path):
    (tmp_path / "pe.npy").write_text("precious")
    with pytest.raises(FileExistsError, match=r"pe\.npy"):
        write_npy(tmp_path / "pe.npy", posenc.Encoding(4), range(3))
    assert (tmp_path / "pe.npy").read_text() == "precious"


@pytest.mark.parametrize("links", [True, False])
def test_files_created_during_the_write_are_not_overwritten(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.delattr(os, "link")
    progress = lambda n: (tmp_path / "pe.npy").write_text("precious")        # noqa: E731
    with pytest.raises(FileExistsError, match=r"pe\.npy"):
        write_npy(tmp_path / "pe.npy", posenc.Encoding(4), range(3), progress=progress)
    assert (tmp_path / "pe.npy").read_text() == "precious"
    assert names(tmp_path) == ["pe.npy"]


def test_overwrite_replaces_the_file_after_the_write(tmp_path):
    (tmp_path / "pe.npy").write_text("old")
    seen = []
    progress = lambda n: seen.append((tmp_path / "pe.npy").read_text())      # noqa: E731
    write_npy(tmp_path / "pe.npy", posenc.Encoding(4), range(3), overwrite=True, progress=progress)
    assert set(seen) == {"old"}
    assert np.load(tmp_path / "pe.npy").shape == (3, 4)


@POSIX
def test_a_symbolic_link_is_kept(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "pe.npy").symlink_to(tmp_path / "elsewhere" / "real.npy")
    write_npy(tmp_path / "pe.npy", posenc.Encoding(4), range(3))
    with pytest.raises(FileExistsError):
        write_npy(tmp_path / "pe.npy", posenc.Encoding(4), range(3))
    write_npy(tmp_path / "pe.npy", posenc.Encoding(4), range(5), overwrite=True)
    assert (tmp_path / "pe.npy").is_symlink() and len(np.load(tmp_path / "elsewhere" / "real.npy")) == 5


@POSIX
def test_overwrite_replaces_only_files(tmp_path):
    (tmp_path / "folder.npy").mkdir()
    os.mkfifo(tmp_path / "fifo.npy")
    for name in names(tmp_path):
        with pytest.raises(OSError, match=name):
            write_npy(tmp_path / name, posenc.Encoding(4), range(3), overwrite=True)
    assert names(tmp_path) == ["fifo.npy", "folder.npy"]


# ---- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, error",
    [
        ({"dtype": "int32"}, TypeError),
        ({"threads": 0}, ValueError),
        ({"positions": range(2**63 - 1, 2**63 + 1)}, ValueError),
        ({"positions": range(0, 2**63, 2**62)}, None),
        ({"positions": range(0, 2**63 + 1, 2**62)}, ValueError),
        ({"positions": range(-(2**63), 2**63)}, ValueError),
    ],
)
def test_invalid_arguments_are_refused_before_a_file_exists(tmp_path, monkeypatch, change, error):
    arguments = {"positions": range(3), "dtype": "float32"} | change
    if error:
        monkeypatch.setattr(atomic, "TemporaryDirectory", None)
        with pytest.raises(error):
            write_npy(tmp_path / "pe.npy", posenc.Encoding(4), **arguments)
    else:
        write_npy(tmp_path / "pe.npy", posenc.Encoding(4), **arguments)


def test_insufficient_disk_space_is_reported_before_writing(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: (10**9, 10**9 - 1000, 1000))
    monkeypatch.setattr(atomic, "TemporaryDirectory", None)
    with pytest.raises(OSError, match=r"1\.15 kB needed, 1 kB free") as caught:
        write_npy(tmp_path / "pe.npy", posenc.Encoding(8), range(32))
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(tmp_path / "pe.npy")


def test_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent.pe\.npy"):
        write_npy(tmp_path / "absent" / "pe.npy", posenc.Encoding(4), range(3))


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError(errno.EIO, "Input/output error")])
def test_any_exception_removes_the_temporary_file(tmp_path, error):
    def fail(written):
        assert names(tmp_path) != []
        raise error

    with pytest.raises(error if isinstance(error, type) else type(error)):
        write_npy(tmp_path / "pe.npy", posenc.Encoding(4), range(3), progress=fail)
    assert names(tmp_path) == []


@POSIX
@pytest.mark.parametrize("suffix, allocates", [("npy", True), ("npy", False), ("zarr", True)])
def test_a_full_disk_leaves_no_file(tmp_path, suffix, allocates):
    """RLIMIT_FSIZE simulates a full disk: the allocation fails, or a write is short and the next one fails."""
    if suffix == "zarr":
        pytest.importorskip("zarr")
    code = """
        import os, resource, sys
        from posenc import _cli
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))
        if sys.argv.pop() == "False":
            del os.posix_fallocate
        sys.exit(_cli.main(sys.argv[1:]))
        """
    path = tmp_path / f"pe.{suffix}"
    done = subprocess.run(python(code, "generate", 10_000, 512, "-o", path, allocates), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"posenc: error: {path}: {os.strerror(errno.EFBIG)}\n")
    assert names(tmp_path) == []


# Run the command line; the first argument says which early checks of disk space are disabled.
SMALL_DISK = """
    import os, shutil, sys
    from posenc import _cli
    without, *arguments = sys.argv[1:]
    if without != "nothing":
        shutil.disk_usage = lambda path: (0, 0, 0)          # as on some network file systems
    if without == "allocation":
        del os.posix_fallocate
    sys.exit(_cli.main(arguments))
    """


def on_a_small_disk(folder, options, code, *args):
    """Mount a new file system on the folder and run code there; the last lines of stdout list the remaining files."""
    script = f'mount -t tmpfs -o {options} tmpfs "$1" && cd "$1" && shift && "$@"; code=$?; ls -A; exit $code'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", folder, *python(code, *args)]
    try:
        subprocess.run([*command[:5], 'mount -t tmpfs tmpfs "$1"', "sh", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("cannot mount a file system")
    return subprocess.run(command, capture_output=True, text=True)


@POSIX
@pytest.mark.parametrize("without", ["nothing", "free space", "allocation"])
def test_a_small_disk_leaves_no_file(tmp_path, without):
    """The error comes from the check of free space, from the allocation, or from a write."""
    done = on_a_small_disk(tmp_path, "size=4m", SMALL_DISK, without, "generate", 5000, 512, "-o", "pe.npy")
    message = f"posenc: error: pe.npy: {os.strerror(errno.ENOSPC)}"
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.startswith(message)
    assert ("10.2 MB needed" in done.stderr) == (without == "nothing")
    done = on_a_small_disk(tmp_path, "size=4m", SMALL_DISK, without, "generate", 500, 512, "-o", "pe.npy")
    assert done.returncode == 0 and done.stdout.endswith("\npe.npy\n")


@POSIX
def test_a_read_only_disk_is_reported(tmp_path):
    done = on_a_small_disk(tmp_path, "ro", SMALL_DISK, "free space", "generate", 500, 512, "-o", "pe.npy")
    message = f"posenc: error: pe.npy: {os.strerror(errno.EROFS)}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


# root ignores permissions unless it drops its privileges
WITHOUT_PRIVILEGES = ["setpriv", "--bounding-set=-all"] if os.name == "posix" and os.geteuid() == 0 else []


@POSIX
def test_a_read_only_file_is_kept(tmp_path):
    (tmp_path / "pe.npy").write_text("old")
    (tmp_path / "pe.npy").chmod(0o444)
    command = [sys.executable, "-m", "posenc", "generate", "10", "8", "-o", str(tmp_path / "pe.npy"), "--force"]
    done = subprocess.run([*WITHOUT_PRIVILEGES, *command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"posenc: error: {tmp_path / 'pe.npy'}: The file is read-only\n")
    assert names(tmp_path) == ["pe.npy"] and (tmp_path / "pe.npy").read_text() == "old"


@POSIX
def test_a_read_only_folder_is_reported(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old.npy").write_text("old")
    folder.chmod(0o555)
    try:
        for name, force in (("pe.npy", []), ("old.npy", ["--force"])):
            command = [sys.executable, "-m", "posenc", "generate", "10", "8", "-o", str(folder / name), *force]
            done = subprocess.run([*WITHOUT_PRIVILEGES, *command], capture_output=True, text=True)
            message = f"posenc: error: {folder / name}: {os.strerror(errno.EACCES)}\n"
            assert (done.returncode, done.stdout, done.stderr) == (1, "", message)
        assert names(folder) == ["old.npy"] and (folder / "old.npy").read_text() == "old"
    finally:
        folder.chmod(0o755)


@POSIX
def test_a_folder_deleted_during_the_write_is_reported(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    process = start_writing(folder)
    shutil.rmtree(folder)
    _, stderr = process.communicate(timeout=20)
    assert (process.returncode, stderr) == (1, f"posenc: error: {folder / 'pe.npy'}: {os.strerror(errno.ENOENT)}\n")
    assert names(tmp_path) == []


@POSIX
@pytest.mark.usefixtures("heard_signals")
@pytest.mark.parametrize("number, code", [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_during_the_write_leaves_no_file(tmp_path, number, code):
    process = start_writing(tmp_path)
    process.send_signal(getattr(signal, number))
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == code and "Traceback" not in stderr
    assert names(tmp_path) == []


@POSIX
@pytest.mark.parametrize("old", [None, "old"])
def test_a_killed_process_leaves_no_partial_file(tmp_path, old):
    path = tmp_path / "pe.npy"
    if old:
        path.write_text(old)
    process = start_writing(tmp_path, "--force")
    process.kill()
    process.communicate(timeout=20)
    assert path.read_text() == old if old else not path.exists()
    assert [name.startswith(".pe.npy.") for name in names(tmp_path)] == [True, False][: 1 + bool(old)]
    write_npy(path, posenc.Encoding(4), range(3), overwrite=True)       # the leftover temporary file is ignored


@POSIX
@pytest.mark.long
@pytest.mark.usefixtures("heard_signals")
@pytest.mark.parametrize("number, times", [("SIGKILL", 200), ("SIGINT", 20), ("SIGTERM", 20)])
def test_signals_at_any_moment_leave_no_partial_file(tmp_path, number, times):
    """The file is absent or complete; after a signal other than SIGKILL, no temporary file is left."""
    number = getattr(signal, number)
    command = [sys.executable, "-m", "posenc", "generate", "100_000", "512", "-o", str(tmp_path / "pe.npy"), "--force"]
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    duration = time.monotonic() - begin
    content = (tmp_path / "pe.npy").read_bytes()
    outcomes = {"no file": 0, "a temporary file": 0, "the complete file": 0}
    for _ in range(times):
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.1, 1.2) * duration)
        process.send_signal(number)
        process.wait(timeout=20)
        complete = (tmp_path / "pe.npy").exists()
        duration *= 0.9 if complete else 1.1        # adapt to the load of the system
        if complete:
            outcomes["the complete file"] += 1
            assert (tmp_path / "pe.npy").read_bytes() == content
        else:
            outcomes["a temporary file" if names(tmp_path) else "no file"] += 1
        if number != signal.SIGKILL:
            assert names(tmp_path) in ([], ["pe.npy"])
    print(outcomes)
    if number != signal.SIGKILL:
        del outcomes["a temporary file"]
    assert min(outcomes.values()) > times / 20      # the signals must be spread over the whole run


@POSIX
@pytest.mark.long
def test_two_gigabytes_take_bounded_memory(tmp_path):
    """Run in a separate process, because RUSAGE_CHILDREN is the maximum over all children."""
    code = """
        import resource, subprocess, sys
        subprocess.run([sys.executable, "-m", "posenc", *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
        print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
        """
    path = tmp_path / "pe.npy"
    try:
        for command in (["generate", "1_000_000", "512", "-o", path], ["verify", path]):
            done = subprocess.run(python(code, *command), capture_output=True, text=True, check=True)
            unit = 1 if sys.platform == "darwin" else 1024
            assert int(done.stdout) * unit < 150e6
        assert path.stat().st_size == 128 + 2_048_000_000
    finally:
        path.unlink(missing_ok=True)


# ---- damaged files --------------------------------------------------------------------------------------------------


TABLE = header(4, 3, "float32") + bytes(48)
DAMAGED = {f"{length} bytes": TABLE[:length] for length in (0, 5, 7, 9, 40, 127, 128, 129, 175)}
DAMAGED |= {
    "another shape": TABLE.replace(b"(4, 3)", b"(4, 4)"),
    "another dtype": TABLE.replace(b"<f4", b"<f8"),
    "another magic": b"\x92" + TABLE[1:],
    "version 4": TABLE[:6] + b"\x04" + TABLE[7:],
    "a header longer than declared": TABLE[:8] + b"\x10" + TABLE[9:],
    "a header shorter than declared": TABLE[:8] + b"\xff\xff" + TABLE[10:],
    "no dict": TABLE.replace(b"{", b"["),
    "another key": TABLE.replace(b"shape", b"Shape"),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_files_that_numpy_refuses_are_refused(tmp_path, content):
    path = tmp_path / "pe.npy"
    path.write_bytes(content)
    with pytest.raises((EOFError, SyntaxError, ValueError, tokenize.TokenError)):
        np.load(path)
    for function in (posenc.open, posenc.verify):
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: "):
            function(path)


def test_damaged_headers_raise_value_error(tmp_path):
    good = header(3, 4, "float32") + bytes(48)
    choice = random.Random(1)
    bodies = [b"(" * 5000, b"-" * 8000 + b"1", b"'''", b"  x\n y", b"{'descr':'<f4','fortran_order':False,'shape':(-3,-4)}"]
    damaged = [b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body + bytes(48) for body in bodies]
    damaged += [good[:length] for length in range(len(good))] + [good + b"\0"]
    for _ in range(500):
        changed = bytearray(good)
        for _ in range(choice.randint(1, 3)):
            changed[choice.randrange(8, 75)] = choice.choice(b"'\"(){}[],:<>\\ \n#0L19-f\x00\xff")
        damaged.append(bytes(changed))
    readable = 0
    for content in damaged:
        (tmp_path / "pe.npy").write_bytes(content)
        try:
            with opened_table(str(tmp_path / "pe.npy")) as table:
                readable += 1
                assert 128 + table.shape[0] * table.shape[1] * itemsize(table.dtype) == len(content)
        except ValueError as error:
            assert str(error).startswith(str(tmp_path))
    assert readable < 50
