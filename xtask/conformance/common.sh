# Sourced by the suites. It starts a cluster of 12 nodes, mounts it at $MOUNT, and removes everything at the end.
# GABION names the program, SCALE is "short" or "whole", WORK is an empty directory of the suite. CACHE is the size of the
# mounts' caches, or empty.
set -euo pipefail

export GABION_DIR=$WORK/cluster
cd "$WORK"
MOUNT=$WORK/mount
passed=0
failed=0
skipped=0

# Counts a check: check NAME COMMAND...
check() {
    local name=$1
    shift
    if "$@" >"$WORK/output" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $name" >&2
        tail --lines 20 "$WORK/output" >&2
    fi
}

# One of two values: the first for a short run.
scaled() {
    if [[ $SCALE == short ]]; then echo "$1"; else echo "$2"; fi
}

mount_files() {
    "$GABION" mount files "$MOUNT" -o "allow_other${CACHE:+,cache=$CACHE}" --log "$WORK/mount.log" >/dev/null
}

unmount_files() {
    if grep --quiet " $MOUNT " /proc/mounts; then
        "$GABION" umount --lazy "$MOUNT" >/dev/null 2>&1 || true
    fi
}

# The process of the mount.
mount_process() {
    pgrep --full -- "mount files $MOUNT"
}

# Kills the mount's process, and mounts again.
mount_again() {
    kill -KILL $(mount_process)
    unmount_files
    mount_files
}

# Kills nodes one after another, each started again before the next, as long as a process runs or COUNT are done.
kill_nodes() {
    local count=$1 process=$2 node
    for ((node = 0; node < count; node++)); do
        kill -0 "$process" 2>/dev/null || break
        "$GABION" chaos kill-node "$node" >/dev/null
        "$GABION" chaos start-node "$node" >/dev/null
        killed=$((node + 1))
    done
}

finish() {
    unmount_files
    "$GABION" cluster down >/dev/null 2>&1 || true
}
trap finish EXIT

start_cluster() {
    "$GABION" cluster up --racks 3 --nodes-per-rack 4 >/dev/null
    "$GABION" pool create files --survive 1-rack --chunk 64KiB >/dev/null
}

start_mount() {
    start_cluster
    mkdir "$MOUNT"
    mount_files
}

# The last line, which the caller reads.
result() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [[ $failed == 0 ]]
}
