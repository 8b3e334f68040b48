#!/usr/bin/env bash
# Style, types, compiler's warnings and likely mistakes in all that is tracked:
#     tools/lint.sh
#
# Needs an environment with the extra `test` and the group `lint` of pyproject.toml: .venv, or the one that is active.  What each
# tool is asked for is said in pyproject.toml and .clang-format.  All tools run; the exit code is 1 if one of them complains.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
PATH=$PWD/.venv/bin:$PATH

files() { git ls-files -- "$@"; }
mapfile -t cython < <(files 'src/*.pyx' 'src/*.pxd')
mapfile -t c < <(files 'src/*.[ch]' 'tests/*.[ch]')
mapfile -t shell < <(files '*.sh' .ci/run)
mapfile -t all < <(files)

complaints=0
run() {
    echo "== $1"
    "$@" || complaints=1
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
exit $complaints
