# Patterns that fio writes and verifies, by two of its engines, buffered and direct.
source "$SUITES/common.sh"
start_mount
size=$(scaled 8M 256M)
for engine in psync libaio; do
    for direct in 0 1; do
        for pattern in randwrite write randrw; do
            check "$engine, direct=$direct, $pattern" fio --name=job --directory="$MOUNT" --size="$size" \
                --ioengine=$engine --iodepth=8 --direct=$direct --rw=$pattern --bsrange=4k-128k --blockalign=4k \
                --verify=crc32c --verify_fatal=1 --do_verify=1 --fsync=64 --unlink=1
        done
    done
done
result
