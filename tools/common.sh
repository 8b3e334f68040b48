# Functions shared by cross.sh, sanitize.sh and wheels.sh.
# shellcheck shell=bash disable=SC2034
set -euo pipefail

target=${1:-} options=("${@:2}") label=$target result='' temporary=''
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONDONTWRITEBYTECODE=1

# Print the second and third line of the script.
usage() { sed -n '2,3s/^# *//p' "$0" >&2; exit 2; }

finish() {
    [[ -z $result ]] || echo "$label: $result"
    [[ -z $temporary ]] || rm -rf "$temporary"
}
trap finish EXIT

# work_folder VARIABLE: create the folder in VARIABLE, or a temporary one if VARIABLE is unset; export its
# absolute path
work_folder() {
    local -n folder=$1
    if [[ -z ${folder:-} ]]; then
        temporary=$(mktemp -d)
        folder=$temporary
    fi
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    export "${1?}"
}

# run_all TARGET...: run the script for each target
run_all() {
    local each failed=0
    for each; do "$BASH" "$0" "$each" "${options[@]}" || failed=1; done
    exit $failed
}

# copy_source FOLDER: copy the files that a build and the tests need to FOLDER, without build products, and cd
# to FOLDER
copy_source() {
    rm -rf "$1"
    mkdir -p "$1"
    cd "$repository"
    cp -R pyproject.toml setup.py MANIFEST.in ./*.md LICENSE src tests docs "$1"
    find "$1" \( -name '*.so' -o -name '*.egg-info' \) -prune -exec rm -r {} +
    cd "$1"
}
