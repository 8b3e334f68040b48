#!/usr/bin/env bash
# The tests under the compilers' sanitizers:
#     tools/sanitize.sh asan | ubsan | tsan | all [--self-test]
#
# asan   AddressSanitizer, GCC: the suite with Python's memory from malloc.
# ubsan  UndefinedBehaviorSanitizer, GCC: the suite.  Python's own flag -fwrapv would hide overflows, so -fno-wrapv.
# tsan   ThreadSanitizer, clang: the kernels in plain threads without Python (tests/race.c), because it does not recognise the
#        synchronisation of Python and of GNU's OpenMP.
#
# --self-test plants one bug in the copy that is built, for that sanitizer to find: success is a report of it.
#
# Needs gcc, Python with pip; for tsan clang.
#
# SANITIZE_DIR  folder for all that is made, kept so that a second run is short (default: a temporary one, removed)
# SANITIZE_PYTHON  Python that has all that the tests need (default: one made in SANITIZE_DIR)
# TESTS         what pytest runs (default: the ordinary suite)
# CLANG         (default: clang)
set -euo pipefail

usage() { sed -n '2,3s/^# *//p' "$0" >&2; exit 2; }
target=${1:-}
[[ $# == 1 || $# == 2 && $2 == --self-test ]] || usage
self_test=${2:-}
repository=$(cd "$(dirname "$0")/.." && pwd)

temporary='' verdict=''
finish() {
    [[ -z $verdict ]] || echo "$target${self_test:+, planted bug}: $verdict"
    [[ -z $temporary ]] || rm -rf "$temporary"
}
trap finish EXIT
if [[ -z ${SANITIZE_DIR:-} ]]; then
    temporary=$(mktemp -d)
    SANITIZE_DIR=$temporary
fi
mkdir -p "$SANITIZE_DIR"
SANITIZE_DIR=$(cd "$SANITIZE_DIR" && pwd)
export SANITIZE_DIR

case $target in
    all)
        failed=0
        for each in asan ubsan tsan; do "$BASH" "$0" "$each" ${self_test:+"$self_test"} || failed=1; done
        exit $failed
        ;;
    asan) compiler="gcc -fsanitize=address" flags="-g -fno-omit-frame-pointer" ;;
    ubsan) compiler="gcc -fsanitize=undefined,float-cast-overflow -fno-sanitize-recover=all" flags="-g -fno-wrapv" ;;
    tsan) compiler="${CLANG:-clang} -fsanitize=thread" flags="-g" ;;
    *) usage ;;
esac

work=$SANITIZE_DIR/$target
source=$work/source
rm -rf "$source" "$work/site" "$work/objects"
mkdir -p "$source"
cd "$repository"
# built in a copy, so that nothing is left in the repository and the bug is planted elsewhere
cp -R pyproject.toml setup.py MANIFEST.in ./*.md LICENSE src tests docs "$source"
find "$source" \( -name '*.so' -o -name '*.egg-info' \) -prune -exec rm -r {} +
cd "$source"
export PYTHONDONTWRITEBYTECODE=1
verdict=FAILED

if [[ -n ${SANITIZE_PYTHON:-} ]]; then
    python=$SANITIZE_PYTHON
else
    python=$SANITIZE_DIR/venv/bin/python
    if [[ ! -x $python ]]; then
        python3 -m venv "$SANITIZE_DIR/venv"
        "$python" -m pip install -q 'pip>=25.1'         # which knows dependency groups
        "$python" -m pip install -q 'setuptools>=77.0.3' 'cython>=3.1' numpy --group test-wheel
    fi
fi

# plant FILE FROM TO: a bug, or an error where the text that it changes is no longer there
plant() {
    grep -qF -- "$2" "$1" || { echo "$1 has no longer: $2" >&2; exit 2; }
    FROM=$2 TO=$3 perl -pi -e 's/\Q$ENV{FROM}\E/$ENV{TO}/' "$1"
}

# report EXPECTED COMMAND...: runs it; with a planted bug success is its failure with that report
report() {
    local expected=$1 status=0
    shift
    timeout --signal=KILL 3000 "$@" > "$work/output" 2>&1 || status=$?
    if [[ -n $self_test ]]; then
        grep -m 1 -E "$expected" "$work/output"         # or the script ends here
        [[ $status != 0 ]]
        verdict=found
    else
        if [[ $status != 0 ]] || grep -E "$expected" "$work/output"; then
            tail -n 200 "$work/output"
            return 1
        fi
        tail -n 5 "$work/output"
        verdict=clean
    fi
}

run_suite() {
    CC=$compiler CFLAGS=$flags "$python" -m pip install -q --no-build-isolation --no-deps --target "$work/site" .
    local tests=${TESTS:-tests}
    [[ -z $self_test ]] || tests=$1
    # --capture=sys: a report goes past Python, to the descriptor
    # shellcheck disable=SC2086
    PYTHONPATH=$work/site report "$2" "${environment[@]}" \
        "$python" -X faulthandler -m pytest -q --capture=sys -p no:cacheprovider "${select[@]}" $tests
}

case $target in
    asan)
        # libstdc++ first: asan's hooks for C++ exceptions look for it when they are set up
        environment=(env LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so.6)"
            ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:handle_segv=0 PYTHONMALLOC=malloc)
        select=(-m "not long and not exhaustive and not memory")
        # the table of offsets a kilobyte too short
        [[ -z $self_test ]] || plant src/posenc/_kernel.pyx 'result.memory = malloc(size)' 'result.memory = malloc(size - 1024)'
        run_suite tests/test_hash.py "ERROR: AddressSanitizer"
        ;;
    ubsan)
        environment=(env UBSAN_OPTIONS=print_stacktrace=1)
        select=()
        # the magnitude of a position as a signed number: that of -2**63 overflows
        [[ -z $self_test ]] || plant src/posenc/kernel/position.h '0 - two_complement' '(uint64_t)-(int64_t)two_complement'
        run_suite tests/test_same_bits.py "runtime error:"
        ;;
    tsan)
        # the flags of setup.py for each instruction set, in objects that the program is linked with
        # planted: every thread counts in the same place
        [[ -z $self_test ]] || plant tests/race.c 'share->slots[member].tally' 'share->slots[0].tally'
        CC=$compiler CFLAGS=$flags "$python" setup.py -q build_ext --build-temp "$work/objects" --build-lib "$work/site"
        objects=("$work"/objects/src/posenc/kernel/*.o)
        # shellcheck disable=SC2086
        $compiler $flags -O1 -std=gnu11 -Wall -Wextra -Werror -Isrc/posenc/kernel tests/race.c "${objects[@]}" \
            -lpthread -lm -o "$work/race"
        # without randomised addresses: clang 14's runtime does not know the layout of newer kernels
        report "WARNING: ThreadSanitizer|FATAL: ThreadSanitizer" env \
            TSAN_OPTIONS=ignore_noninstrumented_modules=1:exitcode=66 setarch -R "$work/race"
        ;;
esac
