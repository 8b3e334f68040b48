#!/usr/bin/env bash
# Estimate the cycles per cache line of the kernels' inner loops on arm64, for baseline and NEON, as a Markdown table:
#     tools/mca.sh [PROCESSOR ...]        (default: neoverse-n1 neoverse-v2 apple-m1)
#
# clang compiles the kernels with the flags of setup.py, and llvm-mca simulates each loop with LLVM's model of the pipelines and
# latencies of a processor.  The model assumes that every load hits the first-level cache and that no store waits for memory.
#
# Requires clang, llvm-mca and libc6-dev-arm64-cross.  LLVM 14 has no model of neoverse-v2; the table in docs/performance.md is
# from LLVM 22.
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
        -o "$work/$isa.s" "$repository/src/posenc/_core/c/isa/kernel_$isa.c"
done

# Print the first loop of a function, from its label to the branch back to the label; the code for rare cases follows the loop.
# For float64, the loop over rows contains a loop over the 16 vectors of a row.  The output repeats this inner loop 16 times.
loop_of() {
    awk -v name="$1:" -v vectors="$3" '
        $1 == name { inside = 1 }
        !inside { next }
        { line[++n] = $0 }
        /^\.L[A-Za-z0-9_]*:/ { at[substr($1, 1, length($1) - 1)] = n }
        $1 == "bl" || $1 == ".cfi_endproc" { exit }
        $NF in at {
            if (!last) { outer = first = at[$NF]; end = last = n }
            else if (vectors > 1 && at[$NF] < first) { outer = at[$NF]; end = n }
        }
        END {
            if (!last) { print "no loop in " name > "/dev/stderr"; exit 1 }
            for (i = outer; i < first; i++) print line[i]
            for (pass = end > last ? vectors : 1; pass; pass--)
                for (i = first; i <= last; i++) if (pass == 1 || line[i] !~ /:/) print line[i]
            for (; i <= end; i++) print line[i]
        }' "$2"
}

# cycles_per_line FUNCTION INSTRUCTION_SET PROCESSOR LINES VECTORS: the loop writes LINES cache lines; a row has VECTORS vectors
cycles_per_line() {
    loop_of "$1" "$work/$2.s" "$5" > "$work/loop.s"
    "${LLVM_MCA:-llvm-mca}" -mtriple=aarch64-linux-gnu -mcpu="$3" -iterations=200 "$work/loop.s" |
        awk -v lines="$4" '/^Total Cycles:/ { printf "%.1f", $3 / 200 / lines }'
}

printf '| cycles per cache line |'
printf ' %s |' "${processors[@]}"
printf '\n|---|'
printf -- '---:|%.0s' "${processors[@]}"
echo
# Each row has a label for the Markdown table, the end of a function's name, LINES and VECTORS.  The function's loop computes
# two rows: the 16 columns of a pass for float32, the 32 columns of a tile for float64.
for row in "float32 FLOAT32_STORE 2 1" "float32, add_to FLOAT32_ADD 2 1" "float64 FLOAT64_STORE 8 16"; do
    read -r -a words <<< "$row"
    vectors=${words[-1]} lines=${words[-2]} function=group_${words[-3]}
    printf '| %s |' "${words[*]:0:${#words[@]}-3}"
    for processor in "${processors[@]}"; do
        baseline=$(cycles_per_line "$function" baseline "$processor" "$lines" "$vectors")
        neon=$(cycles_per_line "$function" neon "$processor" "$lines" "$vectors")
        printf ' %s -> %s |' "$baseline" "$neon"
    done
    echo
done
