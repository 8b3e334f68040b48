#!/usr/bin/env bash
# Check a release, in addition to cibuildwheel, which builds, repairs, audits and tests each wheel:
#     tools/wheels.sh config | sdist | check | complete | torch
#
# config    Check that pyproject.toml and the workflows are valid and safe.
# sdist     Build the sdist in DIST, and check its list of files.
# check     Check the metadata, the bundled licences and the sizes of the files in DIST.
# complete  Check that DIST has the sdist and every wheel of a release.
# torch     Run tests from the sdist with the wheel in DIST, in a process that also loads PyTorch and its OpenMP
#           runtime: once with posenc imported before PyTorch, and once after.
#
# The workflow puts the wheels into DIST; elsewhere, `cibuildwheel --output-dir DIST
# DIST/posenc-VERSION.tar.gz` builds them.
#
# Requires git and a Python with pip and venv.  The tools come from the group `release` of pyproject.toml.
#
# WHEELS_DIR    folder for all files (default: a temporary one, removed at the end); DIST is its folder dist
# PYTHON        Python for the tools (default: python3)
# TORCH_PYTHON  Python with PyTorch and the requirements of the tests; it is not changed (default: a new one in
#               WHEELS_DIR)
# LIMIT         maximum size of a wheel, without bundled libraries and licences, in bytes (default: 430000)
# shellcheck source=tools/common.sh
source "$(dirname "$0")/common.sh"
[[ $# == 1 ]] || usage
limit=${LIMIT:-430000}

# a release has one wheel for each combination of tag and platform
tags=(cp311-abi3 cp314-cp314t cp315-cp315t)
platforms=(manylinux_x86_64 manylinux_aarch64 musllinux_x86_64 musllinux_aarch64 macosx_x86_64 macosx_arm64 win_amd64 win_arm64)
# tracked files that are not in the sdist
development=(.ci .clang-format .github .gitignore benchmarks 'tools/*.sh')

work_folder WHEELS_DIR
work=$WHEELS_DIR dist=$WHEELS_DIR/dist
mkdir -p "$dist"
export PIP_DISABLE_PIP_VERSION_CHECK=1

# environment FOLDER OPTION...: create a virtual environment with `pip install OPTION...`, unless FOLDER
# already has one
environment() {
    [[ ! -e $1/ready ]] || return 0
    "${PYTHON:-python3}" -m venv --clear "$1"
    "$1/bin/pip" install -q 'pip>=25.1'                 # supports dependency groups
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
    local source=$work/source expected actual
    rm -rf "$source" "$dist"
    mkdir -p "$source" "$dist"
    cd "$repository"
    # build from a copy of the tracked files, so that the repository stays unchanged and untracked files are
    # excluded
    git ls-files -z | xargs -0 cp --parents -t "$source"
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH
    python -m build -q --sdist --outdir "$dist" "$source"

    expected=$(git ls-files -- . "${development[@]/#/:!}" | sort)
    actual=$(tar -tzf "$dist"/posenc-*.tar.gz | sed -n 's/^[^/]*\/\(.*[^/]\)$/\1/p')
    actual=$(grep -vE '^(PKG-INFO|setup\.cfg|src/posenc\.egg-info/.*)$' <<< "$actual" | sort)
    diff -U 0 --label tracked --label sdist <(echo "$expected") <(echo "$actual")
    ls "$dist"
}

check() {
    twine check --strict "$dist"/*
    check-wheel-contents --ignore W009,W010 "$dist"/*.whl           # W009 and W010 reject the folder posenc.libs
    python - "$limit" "$dist"/*.whl << 'END'
import sys, zipfile
from pathlib import Path

BUNDLED = ("libgomp", "libomp", "vcomp")          # each has a file in tools/licenses
limit, wheels, failed = int(sys.argv[1]), sys.argv[2:], False
for wheel in map(Path, wheels):
    with zipfile.ZipFile(wheel) as file:
        sizes = {entry.filename: entry.compress_size for entry in file.infolist() if not entry.is_dir()}
    libraries = [name for name in sizes
                 if name.startswith(("posenc.libs/", "posenc/.dylibs/")) and not name.endswith("/.load-order")]
    licences = [name for name in sizes if ".dist-info/licenses/LICENSE-" in name]
    named = sorted(name.rsplit("LICENSE-")[1] for name in licences)
    bundled = sorted(next((known for known in BUNDLED if known in name), name) for name in libraries)
    ours = wheel.stat().st_size - sum(sizes[name] for name in libraries + licences)
    print(f"{wheel.name}: {ours} bytes that are not bundled, limit {limit}; bundles {bundled}, licences for {named}")
    failed |= named != bundled or ours > limit
sys.exit(failed)
END
}

complete() {
    local tag platform
    local -a files
    shopt -s nullglob
    for tag in "${tags[@]}"; do
        for platform in "${platforms[@]}"; do
            # any version of the platform
            files=("$dist"/posenc-*"-$tag-${platform%%_*}"*"_${platform#*_}.whl")
            [[ ${#files[@]} == 1 ]] || { echo "${#files[@]} wheels with tag $tag for $platform, expected 1" >&2; return 1; }
        done
    done
    files=("$dist"/posenc-*.tar.gz "$dist"/*)
    [[ ${#files[@]} == $((2 + ${#tags[@]} * ${#platforms[@]})) ]] ||
        { echo "expected one sdist and no other file in ${files[*]}" >&2; return 1; }
}

torch() {
    local python=${TORCH_PYTHON:-$work/torch/bin/python} order
    [[ -n ${TORCH_PYTHON:-} ]] || environment "$work/torch" --group torch --group test-wheel
    rm -rf "$work/suite" "$work/site"
    mkdir "$work/suite"
    tar -xzf "$dist"/posenc-*.tar.gz --strip-components=1 -C "$work/suite"
    rm -r "$work/suite/src"                 # the package must come from the wheel
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
assert len(runtimes) == 2, "expected two OpenMP runtimes"
sys.exit(pytest.main(sys.argv[2:]))
' "$work/site" -q -n 0 -p no:cacheprovider tests/test_hash.py tests/test_threads.py tests/test_fork.py tests/test_torch.py
    done
}

case $target in
    config | sdist | check | complete | torch) ;;
    *) usage ;;
esac
result=FAILED
environment "$work/tools" --group release
PATH=$work/tools/bin:$PATH
"$target"
result=passed
