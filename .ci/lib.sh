# Shared by the scripts of this folder: go to the root, announce steps with their times, keep builds with other flags apart.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CI=true
# Backtraces make failures readable; colours do not, in a log.
export RUST_BACKTRACE=${RUST_BACKTRACE:-1} CARGO_TERM_COLOR=never
# Where this run's builds go. Builds with other compiler flags get a folder each below it, so that they do not evict each other.
TARGET=${CARGO_TARGET_DIR:-$PWD/target}
# What a later build with a small change would want costs time and much disk, and there is no later build.
export CARGO_INCREMENTAL=0
CI_STARTED=$SECONDS

# step NAME COMMAND..: runs the command without stdin and says how long it took. A failing command ends the script.
step() {
    local name=$1 started=$SECONDS
    shift
    printf '\n==> %s\n    %s\n' "$name" "$*"
    "$@" </dev/null
    printf '<== %s: %d s\n' "$name" $((SECONDS - started))
}

# skip NAME REASON: a step that this machine cannot do. It is said, never silent.
skip() {
    printf '\n==> %s\n<== %s: SKIPPED, %s\n' "$1" "$1" "$2"
}

# some_tests COMMAND..: the command must pass and must have run at least one test; a filter that matches nothing is a mistake.
some_tests() {
    local log code=0
    log=$(mktemp)
    "$@" 2>&1 | tee "$log" || code=$?
    if [ $code = 0 ] && ! grep -q '^test .* \.\.\. ok$' "$log"; then
        echo "no test was run by: $*" >&2
        code=1
    fi
    rm -f "$log"
    return $code
}

finish() {
    printf '\nAll of %s passed in %d s.\n' "$1" $((SECONDS - CI_STARTED))
}

# The flags of model builds. Fat LTO would double the build and change nothing about a model.
loom_test() {
    env CARGO_TARGET_DIR="$TARGET/loom" RUSTFLAGS="--cfg loom" \
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo test --release -p fibra --lib "$@"
}
