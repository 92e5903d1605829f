# Takes the workers' programs and images into the golden node's root image.
# Arguments: a folder of the host, then files below it: programs, and images as *.tar.
set -e
mkdir -p /run/host
LIBMOUNT_FORCE_MOUNT2=always mount -t hostfs none /run/host -o "$1"
shift

for file; do
    case $file in
    *.tar) ;;
    *) install -m 0755 "/run/host/$file" /usr/local/bin/ ;;
    esac
done

modprobe overlay
containerd --config /mnt/lab/.lab/containerd.toml &
containerd=$!
for i in $(seq 100); do
    ctr version >/dev/null 2>&1 && break
    sleep 0.2
done
for file; do
    case $file in
    *.tar) ctr -n k8s.io images import --local "/run/host/$file" ;; # see importScript
    esac
done
ctr -n k8s.io images ls
kill "$containerd"
wait "$containerd" || true

umount /run/host
sync
mount -o remount,ro /
