# Makes a node a worker of the cluster; read by init.sh at every boot.
system=/mnt/lab/.lab

disks=/dev/ubd[b-z]
if [ -n "$lab_hardware" ]; then
    disks=$(lsblk --nodeps --noheadings --paths --raw --output NAME,SERIAL | sed -n 's/ nvme-[abc]$//p')
fi

# What a node's admin does once: data disks in one volume group.
if [ ! -e /var/lib/lab-group-made ]; then
    vgcreate --physicalextentsize 4m --setautoactivation n --addtag fast "$lab_group" $disks && sync && touch /var/lib/lab-group-made
fi

# For containers; device-mapper's modules are left to whoever needs them.
modprobe -a overlay veth
sysctl -qw net.ipv4.ip_forward=1 vm.overcommit_memory=1

# The kubelet wants a clock speed, which user-mode Linux does not tell.
if [ -z "$lab_hardware" ]; then
    sed 's/^bogomips/cpu MHz\t\t: 2000.000\n&/' /proc/cpuinfo >/run/cpuinfo
    mount --bind /run/cpuinfo /proc/cpuinfo
fi

# The pods of the other nodes, through these nodes.
for other in 1 2 3 4 5 6 7 8 9; do
    [ "$other" = "$lab_index" ] || ip route add "10.244.$other.0/24" via "10.88.0.$((10 + other))"
done

mkdir -p /etc/cni/net.d
cp "$system/$lab_node/cni.json" /etc/cni/net.d/lab.conflist

# Runs a program for as long as the node is up.
keep() {
    log=$1
    shift
    while :; do
        "$@" >>"$log" 2>&1
        echo "--- $1 ended with exit code $?" >>"$log"
        sleep 1
    done &
}

keep "$logs/$lab_node.containerd.log" containerd --config "$system/containerd.toml"
while ! [ -S /run/containerd/containerd.sock ]; do sleep 0.2; done
keep "$logs/$lab_node.kubelet.log" kubelet --config "$system/$lab_node/kubelet.yaml" \
    --kubeconfig "$system/$lab_node/kubeconfig" --hostname-override "$lab_node" --node-ip "$lab_ip" --v=2
