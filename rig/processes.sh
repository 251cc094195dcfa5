# shellcheck shell=bash
# shellcheck disable=SC2154  # whoever sources it sets them
# Processes in the background, known by process id and start time. Sourced, never run. It needs `die`, and the folders
# $run for process ids and $log for what they say.

# started_at PID: the kernel's start time; with the id, the name of one process and no other. Nothing for a zombie:
# process 1 may take its time to collect it.
started_at() { sed -n 's/.*) [^ZX] //p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f19; }

# alive NAME: the process recorded by that name runs, and is that same process.
alive() {
    local pid at
    [ -s "$run/$1.pid" ] || return 1
    read -r pid at <"$run/$1.pid"
    [ -n "$pid" ] && [ -n "$at" ] && [ "$(started_at "$pid")" = "$at" ]
}

# start NAME COMMAND...: runs it in the background, in a session of its own, with no lock of ours in its hands.
start() {
    local name=$1 pid
    shift
    if alive "$name"; then return 0; fi
    setsid "$@" </dev/null >>"$log/$name.log" 2>&1 8>&- 9>&- &
    pid=$!
    disown "$pid" 2>/dev/null || true
    printf '%s %s\n' "$pid" "$(started_at "$pid")" >"$run/$name.pid"
}

# stop NAME [SECONDS]: TERM, patience, then KILL for what is left of its process group. Nobody else gets a signal.
stop() {
    local name=$1 limit=${2:-15} pid at i
    [ -s "$run/$name.pid" ] || { rm -f "$run/$name.pid"; return 0; }
    read -r pid at <"$run/$name.pid"
    if [ -n "$at" ] && [ "$(started_at "$pid")" = "$at" ]; then
        kill -TERM "$pid" 2>/dev/null || true
        for ((i = 0; i < limit * 10; i++)); do
            [ "$(started_at "$pid")" = "$at" ] || break
            sleep 0.1
        done
        # `setsid` made the group's id that of the process.
        kill -KILL -- "-$pid" 2>/dev/null || true
    fi
    rm -f "$run/$name.pid"
}

# stop_all SECONDS NAME...: TERM to all of them at once.
stop_all() {
    local limit=$1 name pid at
    shift
    for name in "$@"; do
        alive "$name" && read -r pid at <"$run/$name.pid" && kill -TERM "$pid" 2>/dev/null
    done
    local deadline=$((SECONDS + limit))
    for name in "$@"; do
        while alive "$name" && [ $SECONDS -lt $deadline ]; do sleep 0.05; done
        stop "$name" 0
    done
}

# started: the names of all that was.
started() {
    local file
    for file in "$run"/*.pid; do
        [ ! -e "$file" ] || basename "$file" .pid
    done
}

# dead: the names of those that were started and have ended by themselves.
dead() {
    local name
    for name in $(started); do
        alive "$name" || printf '%s ' "$name"
    done
}

# What died before is started again in its turn: until then it is none that died while it started.
forget_dead() {
    local name
    for name in $(dead); do rm -f "$run/$name.pid"; done
}

# wait_for SECONDS WHAT COMMAND...: until COMMAND succeeds; gives up early when a process died.
wait_for() {
    local limit=$1 what=$2 i gone
    shift 2
    for ((i = 0; i < limit * 10; i++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
        if ((i % 20 == 19)); then
            gone=$(dead)
            [ -z "$gone" ] || die "$what is not ready: $gone died; see $log"
        fi
    done
    die "$what is not ready after $limit s; see $log"
}
