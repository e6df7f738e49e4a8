# SQLite on the mount, whose process is killed again and again: what was committed stays.
source "$SUITES/common.sh"
start_mount

# The locks of a killed mount become free after 10 s.
query() { sqlite3 -cmd '.timeout 30000' "$@"; }

# Inserts rows until the mount fails, and notes each that was committed.
insert() {
    local database=$1 acknowledged=$2 row
    row=$(($(wc --lines <"$acknowledged") + 1))
    while query "$database" "INSERT INTO rows VALUES ($row, randomblob(2000));" 2>/dev/null; do
        echo $row >>"$acknowledged"
        row=$((row + 1))
    done
}

has_all() {
    local database=$1 acknowledged=$2
    [[ $(query "$database" "PRAGMA integrity_check;") == ok ]] || return 1
    local wanted found
    wanted=$(tail --lines 1 "$acknowledged")
    found=$(query "$database" "SELECT count(*) FROM rows WHERE id <= ${wanted:-0};")
    [[ $found == "${wanted:-0}" && $found -gt 0 ]]
}

for mode in delete wal; do
    database=$MOUNT/$mode.db
    acknowledged=$WORK/$mode.acknowledged
    : >"$acknowledged"
    query "$database" "PRAGMA journal_mode=$mode; PRAGMA synchronous=FULL; CREATE TABLE rows (id INTEGER PRIMARY KEY, bytes BLOB);" >/dev/null
    for ((round = 1; round <= $(scaled 2 10); round++)); do
        insert "$database" "$acknowledged" &
        process=$!
        target=$(($(wc --lines <"$acknowledged") + 20))
        until (($(wc --lines <"$acknowledged") >= target)); do kill -0 $process; done
        kill -KILL $(mount_process)
        wait $process || true
        unmount_files
        mount_files
        # A row that was committed, and whose answer did not arrive, is numbered again otherwise.
        last=$(query "$database" "SELECT coalesce(max(id), 0) FROM rows;")
        check "$mode, kill $round" has_all "$database" "$acknowledged"
        seq 1 "$last" >"$acknowledged"
    done
done
result
