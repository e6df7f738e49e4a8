#!/bin/busybox sh
# The first process of the guest of guest.sh. The kernel's words name the phase and the server's port.
/bin/busybox --install -s /bin
export PATH=/bin
# The shell prefers its own programs to those of a path, so the guest's are named whole.
tools=/tools
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for word in $(cat /proc/cmdline); do
    case $word in
    phase=*) phase=${word#phase=} ;;
    port=*) port=${word#port=} ;;
    esac
done
for module in virtio_pci virtio_blk virtio_net nbd crc32c_generic ext4; do
    modprobe $module
done

# The bytes of a file with this number.
contents() { yes "file $1" | head -c 40000; }

# Makes files from this number on, and tells each that is durable, until a line arrives at the keyboard or COUNT are made.
write_files() {
    local number=$1 count=$2
    while [ "$count" -gt 0 ] && ! read -r -t 0 line; do
        contents "$number" | dd of=/disk/"$number" conv=fsync bs=40000 2>/dev/null && echo "synced $number"
        number=$((number + 1))
        count=$((count - 1))
    done
}

# Counts the whole files from 1 on.
whole() {
    local number=1
    while contents $number | cmp -s - /disk/$number; do
        number=$((number + 1))
    done
    echo $((number - 1))
}

stop() { poweroff -f; }

case $phase in
write)
    $tools/mke2fs -q -t ext4 /dev/vda && mount /dev/vda /disk && write_files 1 1000000
    ;;
check)
    # The first mount replays the journal, as after each power cut.
    if ! (mount /dev/vda /disk && umount /disk && $tools/e2fsck -f -n /dev/vda && mount /dev/vda /disk); then
        echo "damaged"
        stop
    fi
    echo "clean"
    found=$(whole)
    echo "whole $found"
    write_files $((found + 1)) 1000000
    umount /disk && $tools/e2fsck -f -n /dev/vda && echo "clean at the end"
    ;;
grow)
    echo "sectors $(cat /sys/block/vda/size)"
    $tools/e2fsck -f -p /dev/vda && $tools/resize2fs /dev/vda && $tools/e2fsck -f -n /dev/vda && echo "grown"
    mount /dev/vda /disk && echo "whole $(whole)"
    umount /disk
    ;;
client)
    ip link set eth0 up
    ip address add 10.0.2.15/24 dev eth0
    $tools/nbd-client 10.0.2.2 "$port" /dev/nbd0 -N files/other -timeout 30
    $tools/mke2fs -q -t ext4 /dev/nbd0 && mount /dev/nbd0 /disk && write_files 1 20
    mount -o remount,ro /disk && [ "$(whole)" = 20 ] && umount /disk && $tools/e2fsck -f -n /dev/nbd0 && echo "client clean"
    $tools/nbd-client -d /dev/nbd0
    ;;
esac
stop
