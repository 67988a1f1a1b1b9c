#!/usr/bin/env bash
# A tour of ioweave: bash examples/tour.sh
# $IOWEAVE names the command, as in IOWEAVE=.venv/bin/ioweave bash examples/tour.sh.
set -euo pipefail

: "${IOWEAVE:=ioweave}"
IOWEAVE=$(command -v "$IOWEAVE") || { echo "no such command; install the package, or set IOWEAVE" >&2; exit 1; }
IOWEAVE=$(realpath -s "$IOWEAVE")
examples=$(realpath "$(dirname "$0")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

say() { printf '\n# %s\n' "$*"; }
show() {
    printf '$ ioweave'
    for word in "$@"; do
        case $word in *[!A-Za-z0-9._=,:/-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\n'
    "$IOWEAVE" "$@"
}

say "The algorithms and machines that come with it."
show list algorithms
show list machines

say "Attention is three lines of mathematics."
show show attention

say "The schedule that moves the least, in 128 KiB of shared memory."
show derive attention q=4096 x=4096 d=64 --capacity smem=128KiB --steps

say "An algorithm of your own needs no file: the log-sum-exp of a row, streamed."
show stream -e 'q, x = 64, 4096; S[q, x]: fp16; Z[q] = logsumexp[x](S[q, x])' --axis x

say "Two passes are an answer too: column sums of a softmax need every row to be finished."
show stream column_sums --axis x

say "A variant: a softcap on the scores. Does it still stream, and what does it cost?"
"$IOWEAVE" show attention | sed 's|softmax\[x\](S\[q, x\])|softmax[x](50 * tanh(S[q, x] / 50))|' > softcap.weave
show stream softcap.weave --axis x
show compare softcap.weave attention

say "A schedule written by hand, counted as it stands."
show cost "$examples/split_levels.weave" --accumulate same

say "Run the derived algorithm in a memory that counts."
show check attention

say "And draw it."
show draw attention --pair -o attention.svg
ls -l attention.svg
