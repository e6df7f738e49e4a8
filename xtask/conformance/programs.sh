# Programs that stress file systems: fs_mark, dbench and bonnie++.
source "$SUITES/common.sh"
start_mount
mkdir "$MOUNT"/{marks,bench,bonnie}
check "fs_mark, 4 threads" fs_mark -d "$MOUNT/marks" -n "$(scaled 100 2500)" -s 4096 -t 4 -S 1
check "dbench, 4 clients" dbench -D "$MOUNT/bench" -t "$(scaled 10 60)" 4
# By blocks: its writes of one character are of 4 KiB for the kernel, each of which is durable by itself.
check "bonnie++" bonnie++ -d "$MOUNT/bonnie" -s "$(scaled 8:64k 512:64k)" -r "$(scaled 4 256)" -n "$(scaled 0 4)" \
    -f -u root -q
result
