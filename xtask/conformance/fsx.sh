# Random reads, writes, truncations, punches and mappings of one file against a model, by the crate fsx; and in two
# mounts in turn.
source "$SUITES/common.sh"
start_mount
count=$(scaled 3000 1000000)
cat >"$WORK/fsx.toml" <<END
flen = 1048576
[opsize]
max = 131072
[weights]
truncate = 3
punch_hole = 2
posix_fallocate = 1
mapread = 0
mapwrite = 0
END
sed 's/mapread = 0/mapread = 10/; s/mapwrite = 0/mapwrite = 10/' "$WORK/fsx.toml" >"$WORK/fsx-mmap.toml"
check "without mmap" "$TOOLS/fsx" -N "$count" -S 1 -f "$WORK/fsx.toml" "$MOUNT/plain"
check "with mmap" "$TOOLS/fsx" -N "$count" -S 2 -f "$WORK/fsx-mmap.toml" "$MOUNT/mapped"
"$TOOLS/fsx" -N "$count" -S 3 -f "$WORK/fsx.toml" "$MOUNT/killed" >"$WORK/killed.log" 2>&1 &
process=$!
killed=0
kill_nodes 5 $process
check "through $killed node kills" wait $process
other=$WORK/other
mkdir "$other"
trap '"$GABION" umount --lazy "$other" >/dev/null 2>&1 || true; finish' EXIT
"$GABION" mount files "$other" -o "allow_other${CACHE:+,cache=$CACHE}" --log "$WORK/other.log" >/dev/null
check "two mounts in turn" python3 "$SUITES/two-mounts.py" "$count" 4 "$MOUNT/shared" "$other/shared"
"$GABION" umount "$other" >/dev/null
result
