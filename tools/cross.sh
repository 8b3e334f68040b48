#!/usr/bin/env bash
# Check that other processors and other compilers give the same bits:
#     tools/cross.sh aarch64 | s390x | i686 | clang | no-openmp | portable | all
#
# aarch64 has NEON and fused operations, s390x is big-endian, and i686 has 32-bit sizes and an x87 unit that
# must not be used. The package is cross-compiled; tests run with qemu-user and Debian's Python and need no
# docker, binfmt or root.
#
# portable only compiles every C file of the kernels for Windows, macOS, musl and riscv64, with warnings as
# errors, with the compiler and the headers in the package ziglang; the last pass compiles the code that MSVC
# sees.  It takes a minute.
#
# All targets require Python with pip.  The targets for processors also require mmdebstrap,
# debian-archive-keyring, qemu-user, gcc-TARGET-linux-gnu and libc6-dev-ARCHITECTURE-cross; clang requires
# clang and libomp-dev.
#
# CROSS_DIR     folder for all files, reused by later runs (default: a temporary one, removed at the end)
# CROSS_SUITE   release of Debian that provides Python (default: trixie)
# CROSS_MIRROR  mirror for mmdebstrap (default: mmdebstrap's default)
# PYTHON        Python for the build (default: python3)
# shellcheck source=tools/common.sh
source "$(dirname "$0")/common.sh"
[[ $# == 1 ]] || usage
python=${PYTHON:-python3}
work_folder CROSS_DIR

case $target in
    all) run_all portable aarch64 s390x i686 clang no-openmp ;;
    aarch64) architecture=arm64 triple=aarch64-linux-gnu qemu=qemu-aarch64 ;;
    s390x) architecture=s390x triple=s390x-linux-gnu qemu=qemu-s390x ;;
    # Debian uses i386 in the names of folders, and i686 in the name of the compiler
    i686) architecture=i386 triple=i386-linux-gnu qemu=qemu-i386 flags=-msse2 ;;
    clang | no-openmp | portable) ;;
    *) usage ;;
esac

work=$CROSS_DIR/$target
rm -rf "$work/site" "$work/wheel"
copy_source "$work/source"
tests=(tests/test_hash.py tests/test_same_bits.py tests/test_environment.py)

build_native() {
    if [[ ! -d $work/venv ]]; then
        "$python" -m venv "$work/venv"
        "$work/venv/bin/pip" install -q 'pip>=25.1'         # supports dependency groups
        "$work/venv/bin/pip" install -q numpy --group test-wheel
    fi
    "$work/venv/bin/pip" install -q --force-reinstall --no-deps .
    run=("$work/venv/bin/python")
    select=()
}

build_foreign() {
    local root=$work/root
    # "extract" unpacks the packages without running their scripts; base-files has the links /lib and /bin
    if [[ ! -e $root/usr/bin/python3 ]]; then
        rm -rf "$root"
        local mode=auto
        [[ $EUID == 0 ]] || mode=chrootless         # does not need user namespaces
        mmdebstrap -q --mode="$mode" --variant=extract --architectures="$architecture" \
            --include=base-files,python3,libpython3-dev,python3-numpy,python3-pytest,python3-pytest-xdist,python3-hypothesis \
            --include=python3-gmpy2,python3-mpmath,python3-tqdm,libgomp1 \
            "${CROSS_SUITE:-trixie}" "$root" ${CROSS_MIRROR:+"$CROSS_MIRROR"}
    fi
    # The headers of the target's Python must precede those of the Python that runs the build, because
    # pyconfig.h defines the sizes of types.  The C library's headers are in the same folder and must be
    # hidden: the cross-compiler has its own headers
    local headers=("$root"/usr/include/python3.*)
    local version=${headers[0]##*/}
    mkdir -p "$work/include/$triple"
    ln -sfn "$root/usr/include/$triple/$version" "$work/include/$triple/$version"
    export CC=$target-linux-gnu-gcc
    CFLAGS="-I${headers[0]} -I$work/include" LDSHARED="$CC -shared" _PYTHON_HOST_PLATFORM=linux-$target \
        "$python" -m pip wheel -q --no-deps -w "$work/wheel" .
    "$python" -m zipfile -e "$work"/wheel/*.whl "$work/site"
    mkdir -p "$work/stub"
    # the tests import ml_dtypes, which Debian does not have; test_hash.py tests bfloat16 without it
    printf 'import numpy\n\nbfloat16 = numpy.uint16\n' > "$work/stub/ml_dtypes.py"
    # without binfmt, tests can start another Python only with the script that started the current one
    printf 'import sys\n\nsys.executable = "%s"\n' "$work/python" > "$work/stub/sitecustomize.py"
    # LD_LIBRARY_PATH replaces the links to libblas and liblapack, which unpacked packages lack.  Tests
    # compile C code with CC; qemu can start this compiler, although it is a native program
    local libraries=$root/usr/lib/$triple
    cat > "$work/python" <<END
#!/usr/bin/env bash
exec $qemu -L "$root" -E PYTHONPATH="$work/site:$work/stub" -E LD_LIBRARY_PATH="$libraries/blas:$libraries/lapack" \\
    -E CC="$CC${flags:+ $flags}" "$root/usr/bin/python3" "\$@"
END
    chmod +x "$work/python"
    run=("$work/python")
    select=(-k "not bfloat16")
}

# compile_all TARGET FLAG...: compile every C file, and the header that only Cython's code includes
compile_all() {
    local source flags zig_target=$1
    shift
    echo '#include "openmp.h"' > "$work/openmp.c"
    for source in src/posenc/_core/c/*/*.c "$work/openmp.c"; do
        flags=("$@")
        case $zig_target:$*:$source in
            x86_64*/kernel_avx2.c) flags+=(-mavx2 -mfma -mf16c) ;;
            x86_64*/kernel_avx512.c) flags+=(-mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma -mf16c) ;;
            */kernel_avx*.c) continue ;;
            *-fgnuc-version=0*/openmp.c) continue ;;        # for POSIX: MSVC does not compile this part
        esac
        "$work/venv/bin/python" -m ziglang cc -target "$zig_target" -Wall -Wextra -Werror -Wno-unused-function \
            -Isrc/posenc/_core/c "${flags[@]}" -c -o "$work/object" "$source"
    done
    echo "compiled for $zig_target: $*"
}

result=FAILED
if [[ $target == portable ]]; then
    export ZIG_GLOBAL_CACHE_DIR=$work/cache ZIG_LOCAL_CACHE_DIR=$work/cache
    [[ -d $work/venv ]] || { "$python" -m venv "$work/venv" && "$work/venv/bin/pip" install -q ziglang; }
    for triple in x86_64-windows-gnu aarch64-windows-gnu x86_64-macos aarch64-macos x86_64-linux-musl aarch64-linux-musl \
        riscv64-linux-gnu; do
        macros=()
        [[ $triple != x86_64* ]] || macros=(-DPOSENC_X86)
        compile_all "$triple" -std=gnu11 -Wconversion "${macros[@]}"
    done
    compile_all x86_64-linux-musl -std=c11 -DPOSENC_X86 -U__SSE2__ -fgnuc-version=0 -fms-extensions
    result="compiled without warnings"
    exit
fi
case $target in
    clang) export CC=clang LDSHARED="clang -shared"; build_native ;;
    no-openmp) export POSENC_NO_OPENMP=1; build_native ;;
    # more tests, because sizes and strides have 32 bits
    i686) build_foreign; tests+=(tests/test_api.py tests/test_seeds.py) ;;
    *) build_foreign ;;
esac
"${run[@]}" tests/test_hash.py
"${run[@]}" -m pytest -q -n 0 -p no:cacheprovider "${select[@]}" "${tests[@]}"
result="the same bits"
