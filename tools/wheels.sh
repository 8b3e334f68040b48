#!/usr/bin/env bash
# What a release goes through, as far as it needs neither GitHub nor docker:
#     tools/wheels.sh config | build | check | complete | test | torch | all
#
# config    pyproject.toml and the workflows are valid and safe; cibuildwheel builds and tests what is listed below.
# build     The sdist, with all that is needed and no more; from it the wheel of this machine, with a release's settings, and
#           repaired.  Its platform is what this system allows (Debian 12: manylinux_2_34, for its glibc); those of a release
#           are built in older images.
# check     What is in DIST keeps to the limited API, renders on an index, names the licences of what it bundles, is small.
# complete  DIST holds the sdist and every wheel of a release.
# test      The suite from the sdist, on the wheel in DIST, in a new environment of each Python.
# torch     The same bits, threads and forks in one process with PyTorch and its OpenMP, imported before and after.
# all       config, build, check, test, torch.
#
# Needs git, gcc, the Pythons named below with pip and venv.  The tools come from the group `release` of pyproject.toml.
#
# WHEELS_DIR    folder for all that is made; DIST is its folder dist (default: a temporary one, removed)
# PYTHONS       Pythons to test with, all of which must be there; the first builds (default: python3.11 python3.12 python3.13)
# TORCH_PYTHON  Python that has PyTorch and what the tests need; nothing is installed into it (default: one made in WHEELS_DIR)
# LIMIT         most bytes of a wheel that may be ours (default: 400000)
set -euo pipefail

usage() { sed -n '2,3s/^# *//p' "$0" >&2; exit 2; }
[[ $# == 1 ]] || usage
target=$1
repository=$(cd "$(dirname "$0")/.." && pwd)
read -ra pythons <<< "${PYTHONS:-python3.11 python3.12 python3.13}"
limit=${LIMIT:-400000}

# where cibuildwheel tests, and with what: the wheel of cp311 also with the later ones
platforms=(manylinux_x86_64 manylinux_aarch64 musllinux_x86_64 musllinux_aarch64 macosx_x86_64 macosx_arm64 win_amd64 win_arm64)
interpreters=(cp311 cp312 cp313 cp314 cp314t cp315 cp315t)
# the wheels of a release: every tag on every platform
tags=(cp311-abi3 cp314-cp314t cp315-cp315t)
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

# environment FOLDER PYTHON: a new virtual environment
environment() {
    "$2" -m venv --clear "$1" || { echo "$2: no such Python; PYTHONS and TORCH_PYTHON name those to use" >&2; return 1; }
    "$1/bin/pip" install -q 'pip>=25.1'                 # which knows dependency groups
}

install_tools() {
    if [[ ! -e $work/tools/ready ]]; then
        environment "$work/tools" "${pythons[0]}"
        (cd "$repository" && "$work/tools/bin/pip" install -q --group release)
        touch "$work/tools/ready"
    fi
    PATH=$work/tools/bin:$PATH
}

# same WHAT EXPECTED FOUND: two lists of lines, in any order
same() {
    diff -U 0 --label expected --label found <(sort <<< "$2") <(sort <<< "$3") || { echo "$1: not as expected" >&2; return 1; }
    echo "$1: $(wc -l <<< "$2"), as expected"
}

# setting NAME...: that entry of [tool.cibuildwheel]; of a list a line each, of a table a line NAME=VALUE each
setting() {
    python - "$@" << 'END'
import functools, sys, tomllib

with open("pyproject.toml", "rb") as file:
    found = functools.reduce(dict.__getitem__, sys.argv[1:], tomllib.load(file)["tool"]["cibuildwheel"])
if isinstance(found, dict):
    found = [f"{name}={value}" for name, value in found.items()]
print(found if isinstance(found, str) else "\n".join(found))
END
}

# unpack FOLDER: the sdist
unpack() {
    rm -rf "$1"
    mkdir -p "$1"
    tar -xzf "$dist"/posenc-*.tar.gz --strip-components=1 -C "$1"
}

identifiers() {
    cibuildwheel --print-build-identifiers --platform linux --archs x86_64,aarch64
    cibuildwheel --print-build-identifiers --platform macos --archs x86_64,arm64
    cibuildwheel --print-build-identifiers --platform windows --archs AMD64,ARM64
}

config() {
    cd "$repository"
    validate-pyproject pyproject.toml
    check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
    check-jsonschema --builtin-schema custom.github-workflows-require-timeout .github/workflows/*.yml
    check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
    zizmor --offline --pedantic --no-progress .github
    local expected found
    expected=$(for each in "${platforms[@]}"; do printf "%s-$each\n" "${interpreters[@]}"; done)
    found=$(identifiers)
    same "identifiers of cibuildwheel" "$expected" "$found"
    # what is asked here is what runs there
    expected=v$(pip show cibuildwheel | sed -n 's/^Version: //p')
    found=$(sed -n 's/.*uses: pypa\/cibuildwheel@.* # //p' .github/workflows/*.yml)
    same "version of cibuildwheel in the workflows" "$expected" "$found"
}

build() {
    local source=$work/source package=$work/package expected found variables
    rm -rf "$source" "$work/built" "$dist"
    mkdir -p "$source" "$dist"
    cd "$repository"
    # in a copy of what is tracked, so that nothing is left in the repository, and what is not tracked is missed
    git ls-files -z | xargs -0 cp --parents -t "$source"
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH
    python -m build -q --sdist --outdir "$dist" "$source"

    expected=$(git ls-files -- . "${development[@]/#/:!}")
    found=$(tar -tzf "$dist"/posenc-*.tar.gz | sed -n 's/^[^/]*\/\(.*[^/]\)$/\1/p')
    same "files of the sdist" "$expected" "$(grep -vE '^(PKG-INFO|setup\.cfg|src/posenc\.egg-info/.*)$' <<< "$found")"

    unpack "$package"
    cd "$package"
    variables=$(setting linux before-build)
    "$BASH" -c "${variables//\{package\}/.}"
    variables=$(setting linux environment)
    mapfile -t variables <<< "$variables"
    env "${variables[@]}" python -m build -q --wheel --outdir "$work/built"
    auditwheel repair -w "$dist" "$work"/built/*.whl 2> "$work/repair.log" || { cat "$work/repair.log" >&2; return 1; }
    ls "$dist"
}

check() {
    twine check --strict "$dist"/*
    check-wheel-contents --ignore W009,W010 "$dist"/*.whl           # the folder posenc.libs, beside the package
    for each in "$dist"/*-abi3-*.whl; do
        abi3audit --strict "$each"
    done
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

# install PYTHON OPTION...: posenc, from a wheel in DIST and from nowhere else
install() {
    "$1" -m pip install -q --no-index --no-deps --only-binary=:all: --find-links "$dist" "${@:2}" posenc
}

# what cibuildwheel copies for the tests: without src, so that the package can only come from the wheel
unpack_suite() {
    local names
    unpack "$work/package"
    cd "$work/package"
    names=$(setting test-sources)
    mapfile -t names <<< "$names"
    rm -rf "$work/suite"
    mkdir "$work/suite"
    cp -R "${names[@]}" "$work/suite"
}

run_suite() {
    local each command
    unpack_suite
    command=$(setting test-command)
    cd "$work/suite"
    for each in "${pythons[@]}"; do
        environment "$work/test" "$each"
        install "$work/test/bin/python"
        "$work/test/bin/pip" install -q 'posenc[test]'
        "$work/test/bin/python" -c 'import posenc; print(posenc.__file__, posenc.show_runtime())'
        PATH=$work/test/bin:$PATH "$BASH" -c "$command"
    done
}

beside_torch() {
    local python=${TORCH_PYTHON:-$work/torch/bin/python} order
    if [[ -z ${TORCH_PYTHON:-} ]]; then
        environment "$work/torch" "${pythons[0]}"
        (cd "$repository" && "$python" -m pip install -q --group torch --group test-wheel)
    fi
    unpack_suite
    rm -rf "$work/site"
    install "$python" --target "$work/site"
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

# step NAME: in a shell of its own, so that what it changes is gone with it
step() {
    echo "---- $1"
    ("$1")
}

verdict=FAILED
install_tools
case $target in
    config | build | check | complete) step "$target" ;;
    test) step run_suite ;;
    torch) step beside_torch ;;
    all) for each in config build check run_suite beside_torch; do step "$each"; done ;;
    *) usage ;;
esac
verdict="as it should be"
