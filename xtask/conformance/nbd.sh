# An image through NBD's own tools, QEMU's and fio's, with the server and nodes killed.
source "$SUITES/common.sh"
start_cluster
"$GABION" image create files/disk --size 256MiB >/dev/null
address=$WORK/nbd.sock
uri="nbd+unix:///files/disk?socket=$address"
serve() {
    rm --force "$address"
    "$GABION" nbd serve --unix "$address" files/disk >"$WORK/serve.log" 2>&1 &
    server=$!
    until [[ -S $address ]]; do kill -0 $server; done
}
serve
head --bytes "$(scaled 16M 256M)" /dev/urandom >"$WORK/source"
truncate --size 256M "$WORK/source"
check "nbdinfo" nbdinfo "$uri"
check "nbdinfo --map of an empty image" bash -c '[[ $(nbdinfo --map "$1" | grep --count hole) -ge 1 ]]' - "$uri"
check "nbdcopy in" nbdcopy "$WORK/source" "$uri"
check "nbdcopy out" nbdcopy "$uri" "$WORK/copy"
check "what came out is what went in" cmp "$WORK/source" "$WORK/copy"
check "qemu-img compare" qemu-img compare -f raw -F raw "$WORK/source" "$uri"
check "qemu-img convert to qcow2" qemu-img convert -f raw -O qcow2 "$uri" "$WORK/copy.qcow2"
check "qemu-img check" qemu-img check "$WORK/copy.qcow2"
check "qemu-img bench" qemu-img bench -f raw -w -c "$(scaled 200 5000)" -d 16 -s 4096 "$uri"
check "qemu-io writes, discards, zeroes and reads" qemu-io -f raw -c 'write -P 0x5a 1M 64k' -c 'read -P 0x5a 1M 64k' \
    -c 'discard 1M 64k' -c 'write -z 2M 64k' -c 'read -P 0 2M 64k' -c 'flush' "$uri"
fio_job() {
    fio --name=job --ioengine=nbd --uri="$uri" --size="$(scaled 16M 256M)" --rw=randwrite --bs=4k --iodepth=16 \
        --verify=crc32c --verify_fatal=1 --randrepeat=1 "$@"
}
check "fio --ioengine=nbd verifies" fio_job --do_verify=1
kill -KILL $server
wait $server 2>/dev/null || true
"$GABION" chaos kill-node 3 >/dev/null
"$GABION" chaos kill-node 7 >/dev/null
serve
check "fio verifies after the server and two nodes were killed" fio_job --verify_only=1
kill $server
wait $server || true
result
