# POSIX semantics of names, modes, owners, times and links, by the crate pjdfstest.
source "$SUITES/common.sh"
start_mount
chmod 755 "$WORK"
cat >"$WORK/pjdfstest.toml" <<END
[features]
posix_fallocate = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]
END
"$TOOLS/pjdfstest" -c "$WORK/pjdfstest.toml" -p "$MOUNT" >"$WORK/report" 2>&1 || true
# The cluster stores no FIFOs, sockets and devices, so tests of these do not apply. A test passes, fails, or is skipped by
# the suite itself, because the kernel or the setting lacks what it needs.
is_special() {
    [[ $1 =~ ::(fifo|block|char|socket)$ || $1 == mkfifo::* || $1 == mknod::* ||
        $1 == open::fifo_nonblock_wronly || $1 == open::socket_error ]]
}
while read -r name verdict; do
    if is_special "$name" || [[ $verdict == skipped ]]; then
        skipped=$((skipped + 1))
    elif [[ $verdict == ok ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $name"
    fi
done < <(sed --quiet --regexp-extended 's/^([a-z0-9_:]+) +(ok|FAILED|skipped).*$/\1 \2/p' "$WORK/report")
cp "$WORK/report" "$KEEP/pjdfstest.txt"
result
