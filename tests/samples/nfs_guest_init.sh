#!/bin/busybox sh
# The first program of the guest: it makes a root of the host's files with memory above them, starts
# the NFS server and two clients of it, runs what it was told, says the exit code and turns off.
#
#   /srv/shared       the folder that is shared, on the server, on ext4
#   /net/node1, 2     the two mounts of it, each in a network namespace of its own, as the host
#                     `node1` or `node2`: 10.0.1.2 and 10.0.2.2, the server being 10.0.1.1, 10.0.2.1
# The kernel gives what it was told and does not know as variables: H5_ROOT, H5_MOUNT, H5_SCRIPT.
if [ ! -e /h5_root ]; then # the first half: still in the kernel's first file system
    /bin/busybox --install -s /bin
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    mount -t devtmpfs dev /dev
    modprobe -a virtio_pci virtio_blk 9pnet_virtio 9p overlay ext4 crc32c_generic veth \
        nfs nfsv3 nfsv4 nfsd lockd
    echo 32803 > /proc/sys/fs/nfs/nlm_tcpport # one port in all namespaces
    echo 32803 > /proc/sys/fs/nfs/nlm_udpport
    echo 1 > /proc/sys/fs/nfs/nlm_grace_period # seconds in which a new server gives no locks
    mount -t tmpfs -o size=1500m tmpfs /made
    mkdir /made/upper /made/work
    mount -t 9p -o trans=virtio,ro,version=9p2000.L,cache=loose,msize=512000 host /host
    mount -t overlay -o lowerdir=/host,upperdir=/made/upper,workdir=/made/work overlay /new
    cp /init /new/h5_init
    ln -s "$H5_ROOT" /new/h5_root
    for name in proc sys dev; do mount --move /$name /new/$name; done
    exec switch_root /new /bin/sh /h5_init
fi

set -e
trap 'code=$?; sync; echo "guest: exit $code"; /h5_root/bin/busybox poweroff -f' EXIT

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/h5_root/usr/sbin:/h5_root/sbin
export LD_LIBRARY_PATH=/h5_root/usr/lib/x86_64-linux-gnu:/h5_root/lib/x86_64-linux-gnu
export HOME=/root; unset PYTHONDONTWRITEBYTECODE

mount -t tmpfs tmpfs /run
mkdir -p /dev/shm /dev/pts /net/node1 /net/node2 /run/rpcbind /run/netns /var/lib/nfs
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
ln -sf /proc/self/fd /dev/fd
hostname server
ip link set lo up
mount /dev/vda /srv
mount -t nfsd nfsd /proc/fs/nfsd
mkdir /srv/shared /srv/state
mount --bind /srv/state /var/lib/nfs
mkdir /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/v4recovery
touch /var/lib/nfs/etab /var/lib/nfs/rmtab /var/lib/nfs/state
echo '_rpc:x:106:65534::/run/rpcbind:/bin/false' >> /etc/passwd # rpcbind will not run as root
rpcbind
rpc.statd --no-notify
touch /etc/exports
exportfs -o rw,no_root_squash,no_subtree_check,fsid=0,insecure '*:/srv/shared'
echo 10 > /proc/fs/nfsd/nfsv4leasetime
echo 10 > /proc/fs/nfsd/nfsv4gracetime
rpc.nfsd --no-udp 4
echo Y > /proc/fs/nfsd/v4_end_grace
rpc.mountd

case $H5_MOUNT in *vers=3*) path=/srv/shared ;; *) path=/ ;; esac
for number in 1 2; do
    ip netns add node$number
    ip link add to_node$number type veth peer name eth0 netns node$number
    ip addr add 10.0.$number.1/24 dev to_node$number
    ip link set to_node$number up
    ip -n node$number addr add 10.0.$number.2/24 dev eth0
    ip -n node$number link set lo up
    ip -n node$number link set eth0 up
    # An rpcbind and statd of its own, beside those of the server: their files are in /run.
    nsenter --net=/run/netns/node$number unshare --uts --mount --propagation slave sh -ec "
        hostname node$number
        mount -t tmpfs tmpfs /run
        mkdir /run/rpcbind
        rpcbind
        rpc.statd --no-notify
    "
    # The name that the server knows a client by is that of the host which mounts.
    nsenter --net=/run/netns/node$number unshare --uts sh -ec "
        hostname node$number
        mount.nfs 10.0.$number.1:$path /net/node$number -o $H5_MOUNT
    "
done
unset LD_LIBRARY_PATH
sh "$H5_SCRIPT"
