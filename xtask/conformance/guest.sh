# A Linux guest under QEMU's emulator with an image as its disk: files are synced while a node is killed, then the guest's
# power is cut and the server killed; the image grows while it is attached; and the kernel's own NBD client.
source "$SUITES/common.sh"
start_cluster
"$GABION" image create files/disk --size 256MiB >/dev/null
"$GABION" image create files/other --size 128MiB >/dev/null
address=$WORK/nbd.sock
kernel=$(ls /boot/vmlinuz-*-cloud-amd64 | tail --lines 1)
modules=/lib/modules/${kernel#/boot/vmlinuz-}

serve() {
    rm --force "$address"
    "$GABION" nbd serve --unix "$address" --listen 127.0.0.1:0 files/disk files/other >"$WORK/serve.log" 2>&1 &
    server=$!
    port=
    until [[ $port ]]; do
        kill -0 $server
        sleep 0.05
        port=$(sed --quiet 's/^ready nbd:.*:\([0-9]*\)$/\1/p' "$WORK/serve.log")
    done
}

# Makes the guest's first file system: busybox, the programs that it lacks with their libraries, and modules.
make_guest() {
    local root=$WORK/guest program library
    mkdir --parents "$root"/{bin,tools,proc,sys,dev,disk}
    for program in busybox mke2fs e2fsck resize2fs nbd-client; do
        program=$(PATH=$PATH:/usr/sbin:/sbin command -v $program)
        cp "$program" "$root/tools/"
        for library in $(ldd "$program" | grep --only-matching '/lib[^ ]*' || true); do
            cp --parents --dereference "$library" "$root"
        done
    done
    mv "$root/tools/busybox" "$root/bin/"
    cp --recursive --parents "$modules" "$root"
    cp "$SUITES/guest-init.sh" "$root/init"
    chmod 755 "$root/init"
    (cd "$root" && find . | cpio --quiet --create --format newc | gzip --fast) >"$WORK/guest.cpio.gz"
    rm --recursive "$root"
}

# Starts the guest for one phase: boot PHASE. What it prints goes to $serial, and file descriptor 5 is its keyboard.
boot() {
    serial=$WORK/$1.serial
    rm --force "$WORK/keyboard"
    mkfifo "$WORK/keyboard"
    exec 5<>"$WORK/keyboard"
    qemu-system-x86_64 -machine q35,accel=tcg -cpu max -m 512 -display none -no-reboot -monitor none -serial stdio \
        -kernel "$kernel" -initrd "$WORK/guest.cpio.gz" -append "console=ttyS0 quiet panic=-1 phase=$1 port=$port" \
        -drive "file=nbd+unix:///files/disk?socket=$address,format=raw,if=virtio,cache=none" \
        -nic user,model=virtio-net-pci <&5 >"$serial" 2>&1 &
    guest=$!
}

# Waits for a line of the guest, for two minutes.
says() {
    local deadline=$((SECONDS + 120))
    until grep --quiet --text "^$1" "$serial"; do
        if ! kill -0 $guest 2>/dev/null || ((SECONDS > deadline)); then
            tail --lines 20 "$serial"
            return 1
        fi
        sleep 0.1
    done
}

# The number of the last file that the guest has synced.
synced() { sed --quiet 's/^synced \([0-9]*\).*/\1/p' "$serial" | tail --lines 1; }

# The number of whole files that the guest has counted.
whole() { sed --quiet 's/^whole \([0-9]*\).*/\1/p' "$serial"; }

guest=
server=
trap 'kill -KILL $guest $server 2>/dev/null || true; finish' EXIT

make_guest
serve
boot write
check "a guest makes a file system and syncs files" says "synced 20"
"$GABION" chaos kill-node 3 >/dev/null
before=$(synced)
check "it syncs files after a node was killed" says "synced $((before + 20))"
kill -KILL $guest $server
wait $guest $server 2>/dev/null || true
"$GABION" chaos start-node 3 >/dev/null
last=$(synced)

serve
boot check
check "after the power cut the file system is clean" says "clean"
says "whole"
check "all $last synced files are there" test "$(whole)" -ge "$last"
check "the guest goes on" says "synced $((last + 5))"
check "the image grows while it is attached" "$GABION" image resize files/disk --size 512MiB
check "the guest writes after that" says "synced $((last + 15))"
echo end >&5
check "the guest ends" says "clean at the end"
wait $guest || true
last=$(synced)

boot grow
check "a guest that attaches again sees the new size" says "sectors 1048576"
check "its file system grows" says "grown"
check "it is clean, and all files are there" says "whole $last"
wait $guest || true

boot client
check "the kernel's own client: a file system on /dev/nbd0, files, and a check" says "client clean"
wait $guest || true
kill $server
wait $server || true
result
