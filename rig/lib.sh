# shellcheck shell=bash
# shellcheck disable=SC2154  # ./test sets them
# Rigs: real systems that tests run against. Sourced by ./test.

rigs_up=()

# rig_up NAME UP DOWN: starts a rig by the command UP. One that does not come up is torn down by DOWN and started once
# more, and the output says so: a flaky machine must not look like a broken Seaway, nor hide one.
rig_up() {
    local name=$1 up=$2 down=$3 attempt began=$SECONDS
    # Before it is up: whoever interrupts this leaves nothing running.
    rigs_up+=("$down")
    for attempt in 1 2; do
        if follow "rig $name" "$scratch/rig-$name.log" bash -c "$up"; then
            [ "$attempt" = 1 ] || say "  rig $name: came up on the second attempt"
            echo "$name: started in $((SECONDS - began)) s" >>"$totals/rigs"
            return 0
        fi
        say "  rig $name: did not come up$([ "$attempt" = 2 ] || echo '; torn down, to be started once more')"
        bash -c "$down" >>"$scratch/rig-$name.log" 2>&1 </dev/null
    done
    unset 'rigs_up[-1]'
    tail -n 20 "$scratch/rig-$name.log"
    return 1
}

# Tears down what is up, the last one first.
rig_all_down() {
    local at
    for ((at = ${#rigs_up[@]} - 1; at >= 0; at--)); do
        bash -c "${rigs_up[at]}" >/dev/null 2>&1 </dev/null
    done
    rigs_up=()
}
