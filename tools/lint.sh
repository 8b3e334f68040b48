#!/usr/bin/env bash
# Check style, types, compiler warnings and spelling of all tracked files:
#     tools/lint.sh
#
# Requires an environment with the extra `test` and the group `lint` of pyproject.toml: .venv, or the active environment.
# pyproject.toml and .clang-format configure the tools.  All tools run; the exit code is 1 if any tool fails.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
PATH=$PWD/.venv/bin:$PATH

files() { git ls-files -- "$@"; }
mapfile -t cython < <(files 'src/*.pyx' 'src/*.px[di]')
mapfile -t c < <(files 'src/*.[ch]' 'tests/*.[ch]')
mapfile -t shell < <(files '*.sh' .ci/run)
mapfile -t all < <(files)

failed=0
run() {
    echo "== $1"
    "$@" || failed=1
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
run env CFLAGS=-Werror python -m pip wheel -q --no-deps -w "$folder" .
run ruff check
run cython-lint "${cython[@]}"
run clang-format --dry-run --Werror "${c[@]}"
run shellcheck "${shell[@]}"
run codespell "${all[@]}"
run mypy
run stubtest posenc --mypy-config-file pyproject.toml --allowlist tests/stubtest.txt
exit $failed
