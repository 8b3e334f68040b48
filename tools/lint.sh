#!/usr/bin/env bash
# Check style, types, compiler warnings and spelling of all tracked files:
#     tools/lint.sh
#
# Requires an environment with the extra `test` and the group `lint` of pyproject.toml: .venv, or the active
# environment. pyproject.toml and .clang-format configure the tools.  All tools run; the exit code is 1 if any
# tool fails.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
PATH=$PWD/.venv/bin:$PATH

files() { git ls-files -- "$@"; }
mapfile -t cython < <(files 'src/*.pyx' 'src/*.px[di]')
mapfile -t c < <(files 'src/*.[ch]' 'tests/*.[ch]')
mapfile -t headers < <(files 'src/posenc/_core/c/*.h' | grep -v neon)
mapfile -t shell < <(files '*.sh' .ci/run)
mapfile -t all < <(files)

failed=0
run() {
    echo "== $1"
    "$@" || failed=1
}
# shellcheck disable=SC2329      # `run` calls it by its name
headers_alone() {
    local header failed=0
    for header in "${headers[@]}"; do
        gcc -std=gnu11 -march=x86-64-v4 -Wall -Wextra -Werror -Wno-unused-function -D_GNU_SOURCE -DISA=alone \
            -Isrc/posenc/_core/c -fsyntax-only -x c "$header" || failed=1
    done
    return "$failed"
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
run env CFLAGS=-Werror python -m pip wheel -q --no-deps -w "$folder" .
run ruff check
run cython-lint "${cython[@]}"
run clang-format --dry-run --Werror "${c[@]}"
run headers_alone
run python benchmarks/pages.py --check
run tools/prove.py --check
run tools/faults.py --check
run shellcheck "${shell[@]}"
run codespell "${all[@]}"
run mypy
run stubtest posenc --mypy-config-file pyproject.toml --allowlist tests/stubtest.txt
exit $failed
