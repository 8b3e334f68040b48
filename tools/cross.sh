#!/usr/bin/env bash
# The same bits on other processors and from other compilers:
#     tools/cross.sh aarch64 | s390x | i686 | clang | no-openmp | all
#
# aarch64 has NEON and fused operations, s390x stores the high byte first, i686 has 32-bit sizes and an x87 that must not
# be used.  They are cross-compiled and run by qemu-user on Debian's Python, without docker, binfmt or root.
#
# Needs Python with pip; for processors mmdebstrap, debian-archive-keyring, qemu-user, gcc-TARGET-linux-gnu and
# libc6-dev-ARCHITECTURE-cross; for clang clang and libomp-dev.
#
# CROSS_DIR     folder for all that is made, kept so that a second run is short (default: a temporary one, removed)
# CROSS_SUITE   release of Debian to take Python from (default: trixie)
# CROSS_MIRROR  what mmdebstrap takes as a mirror (default: its own)
# PYTHON        Python that builds (default: python3)
set -euo pipefail

usage() { sed -n '2,3s/^# *//p' "$0" >&2; exit 2; }
[[ $# == 1 ]] || usage
target=$1
repository=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

temporary='' verdict=''
finish() {
    [[ -z $verdict ]] || echo "$target: $verdict"
    [[ -z $temporary ]] || rm -rf "$temporary"
}
trap finish EXIT
if [[ -z ${CROSS_DIR:-} ]]; then
    temporary=$(mktemp -d)
    CROSS_DIR=$temporary
fi
mkdir -p "$CROSS_DIR"
CROSS_DIR=$(cd "$CROSS_DIR" && pwd)
export CROSS_DIR

if [[ $target == all ]]; then
    failed=0
    for each in aarch64 s390x i686 clang no-openmp; do
        "$BASH" "$0" "$each" || failed=1
    done
    exit $failed
fi

case $target in
    aarch64) architecture=arm64 triple=aarch64-linux-gnu qemu=qemu-aarch64 ;;
    s390x) architecture=s390x triple=s390x-linux-gnu qemu=qemu-s390x ;;
    # Debian names the folders of i386 after the oldest processor and the compiler after the one it serves
    i686) architecture=i386 triple=i386-linux-gnu qemu=qemu-i386 flags=-msse2 ;;
    clang | no-openmp) ;;
    *) usage ;;
esac

work=$CROSS_DIR/$target
source=$work/source
rm -rf "$source" "$work/site" "$work/wheel"
mkdir -p "$source"
cd "$repository"
# built in a copy, so that nothing is left in the repository and an editor does not disturb
cp -R pyproject.toml setup.py MANIFEST.in README.md LICENSE src tests "$source"
find "$source" \( -name '*.so' -o -name '*.egg-info' \) -prune -exec rm -r {} +
cd "$source"
tests=(tests/test_hash.py tests/test_same_bits.py tests/test_environment.py)
export PYTHONDONTWRITEBYTECODE=1

build_native() {
    if [[ ! -d $work/venv ]]; then
        "$python" -m venv "$work/venv"
        "$work/venv/bin/pip" install -q 'pip>=25.1'         # which knows dependency groups
        "$work/venv/bin/pip" install -q numpy --group test-wheel
    fi
    "$work/venv/bin/pip" install -q --force-reinstall --no-deps .
    run=("$work/venv/bin/python")
    select=()
}

build_foreign() {
    local root=$work/root
    # "extract" unpacks the packages and runs none of their scripts; base-files has the links /lib and /bin
    if [[ ! -e $root/usr/bin/python3 ]]; then
        rm -rf "$root"
        local mode=auto
        [[ $EUID == 0 ]] || mode=chrootless         # needs no user namespaces
        mmdebstrap -q --mode="$mode" --variant=extract --architectures="$architecture" \
            --include=base-files,python3,libpython3-dev,python3-numpy,python3-pytest,python3-hypothesis \
            --include=python3-gmpy2,python3-mpmath,python3-tqdm,libgomp1 \
            "${CROSS_SUITE:-trixie}" "$root" ${CROSS_MIRROR:+"$CROSS_MIRROR"}
    fi
    # Python's headers must come before those of the Python that builds (pyconfig.h knows the sizes), and without the
    # C library's beside them, which the cross-compiler has its own of
    local headers=("$root"/usr/include/python3.*)
    local version=${headers[0]##*/}
    mkdir -p "$work/include/$triple"
    ln -sfn "$root/usr/include/$triple/$version" "$work/include/$triple/$version"
    export CC=$target-linux-gnu-gcc
    CFLAGS="-I${headers[0]} -I$work/include" LDSHARED="$CC -shared" _PYTHON_HOST_PLATFORM=linux-$target \
        "$python" -m pip wheel -q --no-deps -w "$work/wheel" .
    "$python" -m zipfile -e "$work"/wheel/*.whl "$work/site"
    mkdir -p "$work/stub"
    # tests import ml_dtypes, which Debian has not; test_hash.py takes the bits of bfloat16 without it
    printf 'import numpy\n\nbfloat16 = numpy.uint16\n' > "$work/stub/ml_dtypes.py"
    # without binfmt a test can only start another Python through the script that starts this one
    printf 'import sys\n\nsys.executable = "%s"\n' "$work/python" > "$work/stub/sitecustomize.py"
    # libblas and liblapack are found through links that an unpacked package lacks; CC is for the tests' own C, a program
    # of this machine, which qemu starts as it is
    local libraries=$root/usr/lib/$triple
    cat > "$work/python" <<END
#!/usr/bin/env bash
exec $qemu -L "$root" -E PYTHONPATH="$work/site:$work/stub" -E LD_LIBRARY_PATH="$libraries/blas:$libraries/lapack" \\
    -E CC="$CC${flags:+ $flags}" "$root/usr/bin/python3" "\$@"
END
    chmod +x "$work/python"
    run=("$work/python")
    select=(-k "not bfloat16 and not argument_types_are_equivalent and not too_large and not x_scale_is_rounded_once")
}

verdict=FAILED
case $target in
    clang) export CC=clang LDSHARED="clang -shared"; build_native ;;
    no-openmp) export POSENC_NO_OPENMP=1; build_native ;;
    # more of them: sizes and strides have 32 bits
    i686) build_foreign; tests+=(tests/test_api.py tests/test_seeds.py) ;;
    *) build_foreign ;;
esac
"${run[@]}" tests/test_hash.py
"${run[@]}" -m pytest -q -p no:cacheprovider "${select[@]}" "${tests[@]}"
verdict="the same bits"
