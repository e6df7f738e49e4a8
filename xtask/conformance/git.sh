# A repository that is made on the mount, cloned on it, and checked.
source "$SUITES/common.sh"
start_mount
count=$(scaled 200 10000)
repository=$MOUNT/repository
git init --quiet "$repository"
git -C "$repository" config user.email suite@example.org
git -C "$repository" config user.name suite
for ((file = 0; file < count; file++)); do
    mkdir --parents "$repository/$((file / 100))"
    echo "file $file" >"$repository/$((file / 100))/$file"
done
check "add and commit" bash -c 'git -C "$1" add . && git -C "$1" commit --quiet --message one' - "$repository"
check "clone" git clone --quiet --no-hardlinks "$repository" "$MOUNT/clone"
check "fsck of the repository" git -C "$repository" fsck --full --strict
check "fsck of the clone" git -C "$MOUNT/clone" fsck --full --strict
check "the clone has every file" diff --recursive --exclude .git "$repository" "$MOUNT/clone"
mount_again
check "fsck after the mount was killed" git -C "$MOUNT/clone" fsck --full --strict
result
