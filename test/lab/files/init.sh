# First process of a node. The kernel's command line gives, as environment:
# lab_role (blank, golden, worker), lab_node, lab_ip, lab_index, lab_group,
# lab_hardware (1 in a node that qemu emulates).
logs=/mnt/lab/logs

if [ -z "$lab_hardware" ]; then
    /mnt/lab/.lab/clock >>"$logs/$lab_node.clock.log" 2>&1 &
    root=ubda
    nic=vec0
else
    root=vda
    nic=eth0
fi

mount -t sysfs sys /sys
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs tmp /tmp
mkdir -p /run/lock/lvm /run/sshd /dev/pts /dev/shm
mount -t devpts -o mode=620,gid=5 devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --make-rshared /
# The root file system shows as /dev/root, which the kubelet looks for.
ln -sf "$root" /dev/root

hostname "$lab_node"
printf '127.0.0.1 localhost\n%s %s\n' "$lab_ip" "$lab_node" >/etc/hosts
printf '%032x\n' "$((lab_index + 4096))" >/etc/machine-id
ip -batch - <<BATCH
link set lo up
$([ "$nic" = eth0 ] || echo "link set $nic name eth0")
addr add $lab_ip/24 dev eth0
link set eth0 up
route add default via 10.88.0.1
BATCH

# An ordinary machine has /dev/loop-control from its boot, and opening it loads
# the module. The kubelet needs it for raw block volumes.
modprobe loop

/lib/systemd/systemd-udevd --daemon
udevadm trigger --action=add --subsystem-match=block
udevadm settle

/usr/sbin/sshd -f /mnt/lab/.lab/sshd_config -E "$logs/$lab_node.sshd.log"

if [ -x "/mnt/lab/.lab/$lab_role.sh" ]; then
    . "/mnt/lab/.lab/$lab_role.sh"
fi

# The first process inherits every orphan; waiting reaps them.
while :; do
    sleep 3600 &
    wait
done
