#!/usr/bin/env bash
# Run the tests with the compilers' sanitizers:
#     tools/sanitize.sh asan | ubsan | tsan | all [--self-test]
#
# asan   Run the test suite with GCC's AddressSanitizer; Python allocates with malloc.
# ubsan  Run the test suite with GCC's UndefinedBehaviorSanitizer and -fno-wrapv, because Python's -fwrapv would
#        hide overflows.
# tsan   Run the kernels in plain threads without Python (tests/race.c) with clang's ThreadSanitizer, which does
#        not support the synchronisation in Python and libgomp.
#
# --self-test adds a bug to a copy of the source; the run succeeds only if the sanitizer reports the bug.
#
# Requires gcc and Python with pip; tsan also requires clang.
#
# SANITIZE_DIR  folder for all files, reused by later runs (default: a temporary one, removed at the end)
# SANITIZE_PYTHON  Python with the requirements of the build and the tests (default: a new environment in
#               SANITIZE_DIR)
# TESTS         arguments for pytest (default: tests)
# CLANG         the program clang (default: clang)
# shellcheck source=tools/common.sh
source "$(dirname "$0")/common.sh"
[[ $# == 1 || $# == 2 && $2 == --self-test ]] || usage
self_test=${2:-}
label+=${self_test:+, self-test}
work_folder SANITIZE_DIR

case $target in
    all) run_all asan ubsan tsan ;;
    asan) compiler="gcc -fsanitize=address" flags="-g -fno-omit-frame-pointer" ;;
    ubsan) compiler="gcc -fsanitize=undefined,float-cast-overflow -fno-sanitize-recover=all" flags="-g -fno-wrapv" ;;
    tsan) compiler="${CLANG:-clang} -fsanitize=thread" flags="-g" ;;
    *) usage ;;
esac

work=$SANITIZE_DIR/$target
rm -rf "$work/site" "$work/objects"
copy_source "$work/source"
result=FAILED

if [[ -n ${SANITIZE_PYTHON:-} ]]; then
    python=$SANITIZE_PYTHON
else
    python=$SANITIZE_DIR/venv/bin/python
    if [[ ! -x $python ]]; then
        python3 -m venv "$SANITIZE_DIR/venv"
        "$python" -m pip install -q 'pip>=25.1'         # supports dependency groups
        "$python" -m pip install -q 'setuptools>=77.0.3' 'cython>=3.1' numpy --group test-wheel
    fi
fi

# add_bug FILE FROM TO: with --self-test, replace FROM with TO
add_bug() {
    [[ -n $self_test ]] || return 0
    grep -qF -- "$2" "$1" || { echo "$1 does not contain: $2" >&2; exit 2; }
    FROM=$2 TO=$3 perl -pi -e 's/\Q$ENV{FROM}\E/$ENV{TO}/' "$1"
}

# report PATTERN COMMAND...: run a command, which must succeed and print no report that matches PATTERN; with
# --self-test, the command must fail and print a report
report() {
    local pattern=$1 status=0
    shift
    timeout --signal=KILL 3000 "$@" > "$work/output" 2>&1 || status=$?
    if [[ -n $self_test ]]; then
        grep -m 1 -E "$pattern" "$work/output"          # set -e ends the script if there is no report
        [[ $status != 0 ]]
        result="bug reported"
    else
        if [[ $status != 0 ]] || grep -E "$pattern" "$work/output"; then
            tail -n 200 "$work/output"
            return 1
        fi
        tail -n 5 "$work/output"
        result=clean
    fi
}

run_suite() {
    CC=$compiler CFLAGS=$flags "$python" -m pip install -q --no-build-isolation --no-deps --target "$work/site" .
    local tests=${TESTS:-tests}
    [[ -z $self_test ]] || tests=$1
    # --capture=sys, because the sanitizer writes its report to the file descriptor of stderr
    # shellcheck disable=SC2086
    PYTHONPATH=$work/site report "$2" "${environment[@]}" \
        "$python" -X faulthandler -m pytest -q -n 0 --capture=sys -p no:cacheprovider "${select[@]}" $tests
}

case $target in
    asan)
        # preload libstdc++, in which asan intercepts C++ exceptions
        environment=(env LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so.6)"
            ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:handle_segv=0 PYTHONMALLOC=malloc)
        select=(-m "not long and not exhaustive and not memory")
        # allocate 1024 bytes too few for an offset table
        add_bug src/posenc/_core/tables.pxi '<double>OFFSETS_PER_COLUMN * spec.columns' '<double>OFFSETS_PER_COLUMN * spec.columns - 128'
        run_suite tests/test_hash.py "ERROR: AddressSanitizer"
        ;;
    ubsan)
        environment=(env UBSAN_OPTIONS=print_stacktrace=1)
        select=()
        # negate a position with signed arithmetic, which overflows for -2**63
        add_bug src/posenc/_core/c/positions.h 'negative ? 0 - p : p' 'negative ? (uint64_t)-(int64_t)p : p'
        run_suite tests/test_same_bits.py "runtime error:"
        ;;
    tsan)
        # let all threads update the same counters
        add_bug tests/race.c 'share->tallies[member]' 'share->tallies[0]'
        CC=$compiler CFLAGS=$flags "$python" setup.py -q build_ext --build-temp "$work/objects" --build-lib "$work/site"
        # setup.py compiles these objects with the flags for each instruction set
        objects=("$work"/objects/*/src/posenc/_core/c/*/*.o)
        # shellcheck disable=SC2086
        $compiler $flags -O1 -std=gnu11 -Wall -Wextra -Werror -Isrc/posenc/_core/c tests/race.c "${objects[@]}" \
            -lpthread -lm -o "$work/race"
        # setarch -R: the runtime of clang 14 does not support the address randomisation of newer Linux
        # kernels
        report "WARNING: ThreadSanitizer|FATAL: ThreadSanitizer" env \
            TSAN_OPTIONS=ignore_noninstrumented_modules=1:exitcode=66 setarch -R "$work/race"
        ;;
esac
