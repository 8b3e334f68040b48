#!/usr/bin/env bash
# What a release goes through beside cibuildwheel, which builds, repairs, audits and tests each wheel:
#     tools/wheels.sh config | sdist | check | complete | torch
#
# config    pyproject.toml and the workflows are valid and safe.
# sdist     Makes the sdist in DIST; it has all that is needed and no more.
# check     What is in DIST renders on an index, names the licences of what it bundles, is small.
# complete  DIST holds the sdist and every wheel of a release.
# torch     The same bits, threads and forks in one process with PyTorch and its OpenMP, imported before and after, on the wheel
#           in DIST, by the suite of the sdist there.
#
# The wheels in DIST are those of the workflow, or of `cibuildwheel --output-dir DIST DIST/posenc-VERSION.tar.gz`.
#
# Needs git and a Python with pip and venv.  The tools come from the group `release` of pyproject.toml.
#
# WHEELS_DIR    folder for all that is made; DIST is its folder dist (default: a temporary one, removed)
# PYTHON        Python to work with (default: python3)
# TORCH_PYTHON  Python that has PyTorch and what the tests need; nothing is installed into it (default: one made in WHEELS_DIR)
# LIMIT         most bytes of a wheel that may be ours (default: 400000)
set -euo pipefail

usage() { sed -n '3s/^# *//p' "$0" >&2; exit 2; }
[[ $# == 1 ]] || usage
target=$1
repository=$(cd "$(dirname "$0")/.." && pwd)
limit=${LIMIT:-400000}

# the wheels of a release: every tag on every platform
tags=(cp311-abi3 cp314-cp314t cp315-cp315t)
platforms=(manylinux_x86_64 manylinux_aarch64 musllinux_x86_64 musllinux_aarch64 macosx_x86_64 macosx_arm64 win_amd64 win_arm64)
# the tracked files that an sdist is complete without
development=(.ci .clang-format .github .gitignore benchmarks 'tools/*.sh')

temporary='' verdict=''
finish() {
    [[ -z $verdict ]] || echo "$target: $verdict"
    [[ -z $temporary ]] || rm -rf "$temporary"
}
trap finish EXIT
if [[ -z ${WHEELS_DIR:-} ]]; then
    temporary=$(mktemp -d)
    WHEELS_DIR=$temporary
fi
mkdir -p "$WHEELS_DIR/dist"
work=$(cd "$WHEELS_DIR" && pwd)
dist=$work/dist
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# environment FOLDER OPTION...: a virtual environment with what `pip install OPTION...` installs, made once
environment() {
    [[ ! -e $1/ready ]] || return 0
    "${PYTHON:-python3}" -m venv --clear "$1"
    "$1/bin/pip" install -q 'pip>=25.1'                 # which knows dependency groups
    (cd "$repository" && "$1/bin/pip" install -q "${@:2}")
    touch "$1/ready"
}

config() {
    cd "$repository"
    validate-pyproject pyproject.toml
    check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
    check-jsonschema --builtin-schema custom.github-workflows-require-timeout .github/workflows/*.yml
    check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
    zizmor --offline --pedantic --no-progress .github
}

sdist() {
    local source=$work/source expected found
    rm -rf "$source" "$dist"
    mkdir -p "$source" "$dist"
    cd "$repository"
    # in a copy of what is tracked, so that nothing is left in the repository, and what is not tracked is missed
    git ls-files -z | xargs -0 cp --parents -t "$source"
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH
    python -m build -q --sdist --outdir "$dist" "$source"

    expected=$(git ls-files -- . "${development[@]/#/:!}" | sort)
    found=$(tar -tzf "$dist"/posenc-*.tar.gz | sed -n 's/^[^/]*\/\(.*[^/]\)$/\1/p')
    found=$(grep -vE '^(PKG-INFO|setup\.cfg|src/posenc\.egg-info/.*)$' <<< "$found" | sort)
    diff -U 0 --label tracked --label sdist <(echo "$expected") <(echo "$found")
    ls "$dist"
}

check() {
    twine check --strict "$dist"/*
    check-wheel-contents --ignore W009,W010 "$dist"/*.whl           # the folder posenc.libs, beside the package
    python - "$limit" "$dist"/*.whl << 'END'
import sys, zipfile
from pathlib import Path

BUNDLED = ("libgomp", "libomp", "vcomp")          # tools/licenses has a file for each
limit, wheels, failed = int(sys.argv[1]), sys.argv[2:], False
for wheel in map(Path, wheels):
    with zipfile.ZipFile(wheel) as file:
        sizes = {entry.filename: entry.compress_size for entry in file.infolist() if not entry.is_dir()}
    libraries = [name for name in sizes if name.startswith(("posenc.libs/", "posenc/.dylibs/")) and not name.endswith("/.load-order")]
    licences = [name for name in sizes if ".dist-info/licenses/LICENSE-" in name]
    named = sorted(name.rsplit("LICENSE-")[1] for name in licences)
    expected = sorted(next((known for known in BUNDLED if known in name), name) for name in libraries)
    if named != expected:
        print(f"{wheel.name}: bundles {expected}, names the licences of {named}", file=sys.stderr)
        failed = True
    # what an archive says of its files, their names included, is ours
    ours = wheel.stat().st_size - sum(sizes[name] for name in libraries + licences)
    extension = sum(size for name, size in sizes.items() if name.startswith("posenc/_kernel."))
    print(f"{wheel.name}: {wheel.stat().st_size} bytes, {ours} ours ({extension} the extension), limit {limit}; bundles {expected}")
    if ours > limit:
        print(f"{wheel.name}: larger than {limit} bytes", file=sys.stderr)
        failed = True
sys.exit(failed)
END
}

complete() {
    local name tag platform
    local -a found
    shopt -s nullglob
    found=("$dist"/posenc-*.tar.gz)
    [[ ${#found[@]} == 1 ]] || { echo "${#found[@]} sdists, expected 1" >&2; return 1; }
    name=$(basename "${found[0]}" .tar.gz)
    for tag in "${tags[@]}"; do
        for platform in "${platforms[@]}"; do
            found=("$dist/$name-$tag-${platform%%_*}"*"_${platform#*_}.whl")        # between them the version of the platform
            [[ ${#found[@]} == 1 ]] || { echo "$name: ${#found[@]} wheels of $tag for $platform, expected 1" >&2; return 1; }
        done
    done
    found=("$dist"/*)
    [[ ${#found[@]} == $((1 + ${#tags[@]} * ${#platforms[@]})) ]] || { echo "more files than those of a release" >&2; return 1; }
    echo "$name: the sdist and $((${#found[@]} - 1)) wheels"
}

torch() {
    local python=${TORCH_PYTHON:-$work/torch/bin/python} order
    [[ -n ${TORCH_PYTHON:-} ]] || environment "$work/torch" --group torch --group test-wheel
    rm -rf "$work/suite" "$work/site"
    mkdir "$work/suite"
    tar -xzf "$dist"/posenc-*.tar.gz --strip-components=1 -C "$work/suite"
    rm -r "$work/suite/src"                 # so that the package can only come from the wheel
    "$python" -m pip install -q --no-index --no-deps --only-binary=:all: --find-links "$dist" --target "$work/site" posenc
    cd "$work/suite"
    for order in "posenc, torch" "torch, posenc"; do
        PYTHONPATH=$work/site "$python" -c "import $order"'
import sys
import pytest

assert posenc.__file__.startswith(sys.argv[1]), posenc.__file__
with open("/proc/self/maps") as file:
    runtimes = sorted({line.split()[-1] for line in file if "libgomp" in line})
print(*runtimes, sep="\n")
assert len(runtimes) == 2, "not the case that this is for: two OpenMP runtimes"
sys.exit(pytest.main(sys.argv[2:]))
' "$work/site" -q -p no:cacheprovider tests/test_hash.py tests/test_threads.py tests/test_fork.py tests/test_torch.py
    done
}

case $target in
    config | sdist | check | complete | torch) ;;
    *) usage ;;
esac
verdict=FAILED
environment "$work/tools" --group release
PATH=$work/tools/bin:$PATH
"$target"
verdict="as it should be"
