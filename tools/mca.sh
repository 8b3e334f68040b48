#!/usr/bin/env bash
# An estimate, not a measurement: the cycles that the inner loops of the kernels take for a line of 64 bytes on arm64, with the
# baseline and with NEON, as a table in Markdown:
#     tools/mca.sh [PROCESSOR ...]        (default: neoverse-n1 neoverse-v2 apple-m1)
#
# clang compiles the kernels with the flags of setup.py, and llvm-mca runs each loop on LLVM's model of a processor, which has
# its pipes and latencies; every load hits the first-level cache, and no store waits for memory.
#
# Needs clang, llvm-mca and libc6-dev-arm64-cross.  LLVM 14 has no model of neoverse-v2; the table in docs/performance.md is of
# LLVM 22.
#
# CLANG, LLVM_MCA    the programs (default: clang, llvm-mca)
set -euo pipefail

repository=$(cd "$(dirname "$0")/.." && pwd)
processors=("$@")
[[ $# != 0 ]] || processors=(neoverse-n1 neoverse-v2 apple-m1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for isa in baseline neon; do
    "${CLANG:-clang}" --target=aarch64-linux-gnu -O3 -std=gnu11 -ffp-contract=off -fvisibility=hidden -S \
        -o "$work/$isa.s" "$repository/src/posenc/kernel/kernel_$isa.c"
done

# What a function does for two rows of 32 columns: its first loop, from a label to the branch back to it; what is rare stands
# behind it.  Where it is within another it is the one over the 16 vectors of a row, and is written out.
loop_of() {
    awk -v name="$1:" '
        $1 == name { inside = 1 }
        !inside { next }
        { line[++n] = $0 }
        /^\.L[A-Za-z0-9_]*:/ { at[substr($1, 1, length($1) - 1)] = n }
        $1 == "bl" || $1 == ".cfi_endproc" { exit }
        $NF in at {
            if (!last) { outer = first = at[$NF]; end = last = n }
            else if (at[$NF] < first) { outer = at[$NF]; end = n }
        }
        END {
            if (!last) { print "no loop in " name > "/dev/stderr"; exit 1 }
            for (i = outer; i < first; i++) print line[i]
            for (pass = end > last ? 16 : 1; pass; pass--)
                for (i = first; i <= last; i++) if (pass == 1 || line[i] !~ /:/) print line[i]
            for (; i <= end; i++) print line[i]
        }' "$2"
}

cycles_a_line() {        # function, instruction set, processor, lines that the loop writes in one pass
    loop_of "$1" "$work/$2.s" > "$work/loop.s"
    "${LLVM_MCA:-llvm-mca}" -mtriple=aarch64-linux-gnu -mcpu="$3" -iterations=200 "$work/loop.s" |
        awk -v lines="$4" '/^Total Cycles:/ { printf "%.1f", $3 / 200 / lines }'
}

printf '| cycles for a line |'
printf ' %s |' "${processors[@]}"
printf '\n|---|'
printf -- '---:|%.0s' "${processors[@]}"
echo
# in one pass two rows of 32 columns
for row in "float32 FLOAT32_STORE 4" "float32, add_to FLOAT32_ADD 4" "float64 FLOAT64_STORE 8"; do
    read -r -a words <<< "$row"
    lines=${words[-1]} function=group_${words[-2]}
    printf '| %s |' "${words[*]:0:${#words[@]}-2}"
    for processor in "${processors[@]}"; do
        before=$(cycles_a_line "$function" baseline "$processor" "$lines")
        after=$(cycles_a_line "$function" neon "$processor" "$lines")
        printf ' %s -> %s |' "$before" "$after"
    done
    echo
done
