# pgbench against PostgreSQL on the mount, while two nodes and then the mount's process are killed.
source "$SUITES/common.sh"
start_mount
binaries=$(dirname "$(ls /usr/lib/postgresql/*/bin/initdb | tail --lines 1)")
data=$MOUNT/database
socket=$WORK/socket
transactions=$WORK/transactions
mkdir "$data" "$socket" "$transactions"
chmod 755 "$WORK"
chown postgres "$data" "$socket" "$transactions"
chmod 700 "$data"
as_postgres() { runuser --user postgres -- "$@"; }
server() {
    as_postgres "$binaries/pg_ctl" -D "$data" -w -t 120 -l "$transactions/server.log" \
        -o "-k $socket -c listen_addresses= -c autovacuum=off" "$@"
}
query() { as_postgres psql --host "$socket" --no-psqlrc --tuples-only --no-align --command "$1" postgres; }

as_postgres "$binaries/initdb" -D "$data" --data-checksums --auth trust >/dev/null
server start >/dev/null
as_postgres pgbench --host "$socket" --initialize --quiet --scale 1 postgres 2>/dev/null
(cd "$transactions" && exec runuser --user postgres -- pgbench --host "$socket" --client 4 --time "$(scaled 20 300)" \
    --log --no-vacuum postgres >"$transactions/pgbench.out" 2>&1) &
process=$!
begun=$SECONDS
acknowledged() { cat "$transactions"/pgbench_log.* 2>/dev/null | wc --lines; }
until (($(acknowledged) >= 20)); do kill -0 $process; done
killed=0
kill_nodes 2 $process
check "transactions go on after $killed node kills" kill -0 $process
# The load goes on for most of its time.
while ((SECONDS - begun < $(scaled 0 240))); do sleep 1; done
before=$(acknowledged)
until (($(acknowledged) > before)); do kill -0 $process; done
kill -KILL $(mount_process)
wait $process || true
pkill -KILL -u postgres -x postgres || true
while pgrep -u postgres -x postgres >/dev/null; do :; done
unmount_files
mount_files
rm --force "$data/postmaster.pid"
check "the server recovers" server start
# pgbench logs a transaction when its commit was answered, and each adds a row to the history.
wanted=$(acknowledged)
has_all() { (($(query "SELECT count(*) FROM pgbench_history;") >= wanted && wanted > 0)); }
check "all $wanted acknowledged transactions are there" has_all
balanced() {
    [[ $(query "SELECT sum(delta) = (SELECT sum(abalance) FROM pgbench_accounts) FROM pgbench_history;") == t ]]
}
check "accounts agree with the history" balanced
check "pg_amcheck" as_postgres "$binaries/pg_amcheck" --host "$socket" --install-missing --heapallindexed postgres
server stop -m fast >/dev/null
check "checksums of all pages" as_postgres "$binaries/pg_checksums" --check -D "$data"
result
