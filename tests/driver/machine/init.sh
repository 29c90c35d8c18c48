#!/bin/busybox sh
# The first process of the machine: its root is the host's, and what is written stays in memory.
set -e
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do
    insmod "$module"
done
ip link set lo up

mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /host
mount -t tmpfs memory /memory
mkdir -p /memory/written /memory/overlay
cp /command /memory/written/command
mount -t overlay -o lowerdir=/host,upperdir=/memory/written,workdir=/memory/overlay root /root

for folder in proc sys dev; do
    mount --move /$folder /root/$folder
done
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts devpts /root/dev/pts
mount -t tmpfs shm /root/dev/shm
mount -t tmpfs run /root/run
mount -t cgroup2 cgroup /root/sys/fs/cgroup
echo "+cpuset +cpu +memory +pids" >/root/sys/fs/cgroup/cgroup.subtree_control
exec switch_root /root /bin/sh /command
