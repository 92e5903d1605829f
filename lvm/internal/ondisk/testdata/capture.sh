#!/bin/bash
# Captures the groups in this folder from real LVM, for the tests that hold the two readers to one another:
#     capture.sh OUT 'LVM 2.03.16 COMMAND' 'LVM 2.03.31 COMMAND' [SCENARIO...]
# The commands may be "lvm" or "chroot DIR lvm". Needs root and loop devices; the volumes made of others also need
# device-mapper (a lab node has it; name them, they are not in the default). Each scenario leaves OUT/SCENARIO with
#     DEVICE.gz          the first 1 MiB of each disk that is there, as the last command left it
#     DEVICE.end.gz      the last 1 MiB, where there is something in it
#     16.json, 31.json   the report that report.go asks for, from either generation
#     31.std.json        the same in LVM's newer JSON format
# and sizes.txt, the size of each disk in bytes.
#     AGAIN=1 capture.sh OUT ...
# takes the disks that were captured before and only asks for the reports anew, without device-mapper. A scenario that
# has a file text/SCENARIO.vg is not made by commands, but written to the disks from that text, by vgcfgrestore: what
# an interrupted command leaves behind.
set -euo pipefail
out=$1 old=$2 new=$3; shift 3
here=$(cd "$(dirname "$0")" && pwd); work=$(mktemp -d); disks=()
trap 'for d in "${disks[@]}"; do losetup -d "$d" || true; done; rm -rf "$work"' EXIT
export LC_ALL=C LVM_SUPPRESS_FD_WARNINGS=1

config='devices { obtain_device_list_from_udev=0 external_device_info_source="none" use_devicesfile=0 hints="none"
 scan_lvs=0 } global { use_lvmpolld=0 notify_dbus=0 event_activation=0 thin_check_executable="" cache_check_executable="" } activation { udev_sync=0 udev_rules=0
 monitoring=0 } backup { backup=0 archive=0 }'
run() { # run VERB ARGS: by the older LVM, on this scenario's disks
    local verb=$1; shift
    $old "$verb" --config "$config" --devices "$(IFS=,; echo "${disks[*]}")" "$@" >/dev/null
}
disk() { # disk MIB: a new disk, its device is in $last
    local file; file=$(mktemp "$work/diskXXXX")
    truncate -s "$1M" "$file"; last=$(losetup -f --show "$file"); disks+=("$last")
}
unplug() { # unplug DEVICE
    losetup -d "$1"; local left=() d
    for d in "${disks[@]}"; do [ "$d" = "$1" ] || left+=("$d"); done
    disks=("${left[@]}")
}
lv() { run lvcreate --driverloaded n -y -an -Zn -Wn "$@"; }
group() { run vgcreate --driverloaded n -s 4m --setautoactivation n "$@"; }
metadata_only() { run "$1" --driverloaded n "${@:2}"; }

empty() { disk 64; group vg "$last"; }
linear() { # gaps between volumes, volumes over two disks, foreign tags and ours
    disk 64; disk 128; group --addtag fast --addtag vendor.x/y vg "${disks[@]}"
    for n in a b c d e; do lv -l 4 -n $n vg; done
    lv -l 3 -n pvc-0f0e --addtag nodelvm.v=1 --addtag nodelvm.state=ready --addtag nodelvm.cluster=8c-1 \
        --addtag nodelvm.name=pvc-0f0e --addtag nodelvm.claim=ns/data-0 --addtag nodelvm.wipe=zero --addtag nodelvm.layout=linear vg
    metadata_only lvremove -y vg/b; metadata_only lvremove -y vg/d
    lv -l 9 -n f --addtag 'a&b#20!' --addtag 'x=/:._+-' vg; metadata_only lvextend -l 6 vg/a
}
striped() { disk 64; disk 64; disk 64; group vg "${disks[@]}"; lv --type striped -i 3 -l 6 -n s vg; lv -l 2 -n l vg; }
lostlegs() { disk 64; disk 64; disk 64; group vg "${disks[@]}"; lv --type striped -i 3 -l 6 -n s vg; unplug "${disks[0]}"; unplug "${disks[1]}"; }
missing() {
    disk 64; first=$last; disk 64; group vg "${disks[@]}"
    lv -l 3 -n stays vg "$first"; lv -l 3 -n gone vg "$last"; unplug "$last"
}
returned() { # a disk that was away while the group went on: its MISSING flag stays
    disk 64; first=$last; disk 64; second=$last; group vg "${disks[@]}"; lv -l 3 -n a vg "$second"
    all=("${disks[@]}"); disks=("$first")
    lv --config "$config" -l 1 -n b vg "$first" 2>/dev/null || metadata_only vgchange --addtag changed vg
    disks=("${all[@]}")
}
idle() { # the same of a disk that nothing lies on: LVM passes over the flag, and the next commit drops it
    disk 64; first=$last; disk 64; group vg "${disks[@]}"; lv -l 3 -n a vg "$first"
    all=("${disks[@]}"); disks=("$first"); metadata_only vgchange --addtag changed vg; disks=("${all[@]}")
}
exported() { disk 64; group vg "$last"; lv -l 2 -n a vg; metadata_only vgexport vg; }
foreign() { disk 64; group --systemid another-host vg "$last"; }
fixed() { disk 64; group vg "$last"; metadata_only vgchange --resizeable n vg; }
samename() { disk 64; group vg "$last"; lv -l 1 -n a vg; first=("${disks[@]}"); disks=(); disk 96; group vg "$last"; disks+=("${first[@]}"); }
noallocation() { disk 64; disk 64; group vg "${disks[@]}"; metadata_only pvchange -x n "$last"; }
ignored() { # of the two metadata areas only one is in use
    disk 64; disk 64; group --metadatacopies 1 vg "${disks[@]}"; lv -l 5 -n a vg
}
noarea() { disk 64; metadata_only pvcreate --metadatacopies 0 "$last"; disk 64; group vg "${disks[@]}"; lv -l 5 -n a vg; }
twoareas() { disk 64; metadata_only pvcreate --metadatacopies 2 "$last"; group vg "$last"; lv -l 5 -n a vg; }
wrapped() { # so many commits in a small area that the text goes round its end
    disk 64; group --metadatasize 64k vg "$last"
    for n in $(seq 1 12); do lv -l 1 -n "v$n" --addtag "tag-of-volume-$n" vg; done
    for _ in $(seq 1 5); do metadata_only vgchange --addtag t vg; metadata_only vgchange --deltag t vg; done
    until wraps "$last"; do metadata_only vgchange --addtag t vg; metadata_only vgchange --deltag t vg; done
}
wraps() { # does the text at byte 4096+40 of the device (offset, size) go beyond the area's end?
    read -r size offset length < <(dd if="$1" bs=1 skip=4128 count=24 2>/dev/null | od -An -t u8 -w24 | awk '{print $1, $2, $3}')
    [ $((offset + length)) -gt "$size" ]
}
orphan() { disk 64; metadata_only pvcreate "$last"; disk 64; group vg "$last"; }
raid() { disk 64; disk 64; disk 64; run vgcreate -s 4m vg "${disks[@]}"; run lvcreate -y --type raid1 -m1 -l 3 -n r1 vg; run lvcreate -y --type raid5 -i2 -l 4 -n r5 vg; run lvcreate -y --type mirror -m1 -l 1 -n m vg; }
thin() {
    disk 128; run vgcreate -s 4m vg "$last"; run lvcreate -y --type thin-pool -l 8 -n pool vg
    run lvcreate -y --type thin -V 100m --thinpool pool -n t vg; run lvcreate -y -s -n tsnap vg/t
    run lvcreate -y -an -Zn -l 2 -n ext vg; run lvchange -p r vg/ext; run lvcreate -y -s --thinpool pool -n text vg/ext
}
snapshot() { disk 64; run vgcreate -s 4m vg "$last"; run lvcreate -y -l 4 -n o vg; run lvcreate -y -s -l 2 -n snap vg/o; }
cache() {
    disk 64; disk 64; run vgcreate -s 4m vg "${disks[@]}"; run lvcreate -y -l 4 -n slow vg "${disks[0]}"
    run lvcreate -y -l 4 -n fast vg "${disks[1]}"; run lvconvert -y --type cache --cachevol fast vg/slow
}
writecache() {
    disk 64; disk 64; run vgcreate -s 4m vg "${disks[@]}"; run lvcreate -y -l 4 -n slow vg "${disks[0]}"
    run lvcreate -y -an -Zn -l 4 -n fast vg "${disks[1]}"; run lvconvert -y --type writecache --cachevol fast vg/slow
}
cachepool() {
    disk 64; disk 64; run vgcreate -s 4m vg "${disks[@]}"; run lvcreate -y -l 4 -n slow vg "${disks[0]}"
    run lvcreate -y --type cache-pool -l 4 -n fast vg "${disks[1]}"; run lvconvert -y --type cache --cachepool fast vg/slow
}
integrity() { disk 64; disk 64; run vgcreate -s 4m vg "${disks[@]}"; run lvcreate -y --type raid1 -m1 --raidintegrity y -l 3 -n r vg; }
thinonraid() {
    disk 64; disk 64; run vgcreate -s 4m vg "${disks[@]}"; run lvcreate -y --type raid1 -m1 -l 4 -n pool vg
    run lvconvert -y --type thin-pool vg/pool; run lvcreate -y -V 10m --thinpool pool -n t vg
}
layouts() { # each on few extents, some extended, so that legs lie in pieces
    for _ in 1 2 3 4 5 6; do disk 64; done; run vgcreate -s 1m vg "${disks[@]}"
    run lvcreate -y --type raid1 -m2 -l 2 -n r1 vg; run lvcreate -y --type raid6 -i3 -I 32k -l 3 -n r6 vg
    run lvcreate -y --type raid10 -i2 -m1 -l 4 -n r10 vg; run lvcreate -y --type raid5 -i2 -I 16k -l 4 -n r5 vg
    run lvcreate -y --type striped -i2 -I 8k -l 4 -n s vg; run lvcreate -y -l 3 -n between vg "${disks[@]:0:4}"
    run lvextend -y -l 10 vg/r5; run lvextend -y -l 6 vg/r1; run lvextend -y -l 12 vg/s; run lvextend -y -l 8 vg/r10
}
lost() { layouts; run vgchange -an vg; unplug "${disks[1]}"; unplug "${disks[3]}"; } # two disks are missing
snapshots() { # of snapshots, and one whose origin is gone; a pool that does not zero
    disk 128; run vgcreate -s 4m vg "$last"; run lvcreate -y --type thin-pool -Zy -c 128k -l 8 --poolmetadatasize 8m -n pool vg
    run lvcreate -y --type thin -V 100m --thinpool pool -n t vg; run lvcreate -y -s -kn -pr -n s1 vg/t; run lvcreate -y -s -kn -n s2 vg/s1
    run lvcreate -y -s -kn -n s3 vg/s2; run lvremove -y vg/s1; run lvcreate -y --type thin-pool -Zn -l 3 -n raw vg
    run lvextend -y -l 11 vg/pool
}
virtual() { disk 64; run vgcreate -s 4m vg "$last"; run lvcreate -y -s -l 2 -V 100m -n sparse vg; }
degraded() { # a mirror that has lost a disk
    disk 64; disk 64; run vgcreate -s 4m vg "${disks[@]}"; run lvcreate -y --type raid1 -m1 -l 3 -n r vg
    run vgchange -an vg; unplug "$last"
}
moving() { # a pvmove under way
    disk 64; disk 64; run vgcreate -s 4m vg "${disks[@]}"; run lvcreate -y -l 3 -n a vg "${disks[0]}"
    run pvmove -b -i +100 "${disks[0]}" </dev/null 2>&1 # first waits, then looks whether it has ended
}
skipped() { disk 64; run vgcreate -s 4m vg "$last"; run lvcreate -y -an -Zn -ky -l 3 -n a vg; run lvchange -p r vg/a; run lvcreate -y -an -Zn -l 1 -My --major 252 --minor 99 -n fixed vg; }

written() { # written SCENARIO: a group from its text, on as many disks as it has
    local text=$here/text/$1.vg uuid
    while read -r uuid; do
        disk 128
        run pvcreate --driverloaded n -ff -y --norestorefile --uuid "$uuid" "$last"
    done < <(sed -n '/physical_volumes {/,/logical_volumes {/s/^id = "\(.*\)"/\1/p' "$text")
    metadata_only vgcfgrestore --force -y -f "$text" vg
}
plug() { # plug SCENARIO: the disks that were captured before
    local name size
    while read -r name size; do
        disk $((size / 1048576))
        gzip -dc "$out/$1/$name.gz" | dd of="$last" conv=notrunc 2>/dev/null
        [ ! -f "$out/$1/$name.end.gz" ] || gzip -dc "$out/$1/$name.end.gz" | dd of="$last" bs=1M seek=$((size / 1048576 - 1)) conv=notrunc 2>/dev/null
        echo "s|$last\\b|/dev/was-$name|g"
    done <"$out/$1/sizes.txt" >"$work/names"
    echo 's|/dev/was-|/dev/|g' >>"$work/names"
    blockdev --flushbufs "${disks[@]}"
}

report() { # report COMMAND FORMAT FILE
    LVM_REPORT_FD=3 $1 fullreport --config "$config" --devices "$(IFS=,; echo "${disks[*]}")" -a --foreign --shared --reportformat "$2" --units b --nosuffix --binary \
        --configreport vg -o vg_uuid,vg_name,vg_tags,vg_seqno,vg_extent_size,vg_mda_size,vg_mda_free,vg_exported,vg_extendable,vg_permissions,vg_clustered,vg_shared,vg_lock_type,vg_systemid \
        --configreport pv -o pv_uuid,pv_name,pv_pe_count,pv_missing,pv_allocatable,pe_start,dev_size \
        --configreport lv -o lv_uuid,lv_name,lv_size,lv_tags,lv_time,origin,pool_lv,data_lv,metadata_lv,mirror_log \
        --configreport pvseg -o pv_uuid,pvseg_start,pvseg_size,segtype,lv_uuid,seg_start_pe \
        --configreport seg -o lv_uuid,seg_start_pe,seg_size_pe,segtype,stripe_size,region_size,chunk_size,zero,devices,metadata_devices 3>"$3" >/dev/null
}
reports() { # reports DIR
    report "$old" json "$1/16.json"
    [ -z "$new" ] || { report "$new" json "$1/31.json"; report "$new" json_std "$1/31.std.json"; }
}
again() { # again SCENARIO: only the reports
    plug "$1"
    reports "$out/$1"
    sed -i -f "$work/names" "$out/$1"/*.json
}
capture() { # capture SCENARIO: its disks and the reports
    if [ -f "$here/text/$1.vg" ]; then written "$1"; else "$1"; fi
    local to=$out/$1 d; rm -rf "$to"; mkdir -p "$to"
    for d in "${disks[@]}"; do
        dd if="$d" bs=1M count=1 iflag=direct 2>/dev/null | gzip -9n >"$to/${d#/dev/}.gz"
        tail -c 1048576 "$d" | cmp -s -n 1048576 - /dev/zero || tail -c 1048576 "$d" | gzip -9n >"$to/${d#/dev/}.end.gz"
        echo "${d#/dev/} $(blockdev --getsize64 "$d")"
    done >"$to/sizes.txt"
    reports "$to"
    if grep -q device-mapper /proc/misc && [ "$1" != foreign ]; then run pvmove --abort -i 1 || true; run vgchange -an vg || true; fi
}
scenarios=("$@")
[ $# -gt 0 ] || scenarios=(empty linear striped missing returned idle exported foreign fixed samename noallocation ignored noarea twoareas wrapped orphan)
for scenario in "${scenarios[@]}"; do
    if [ -n "${AGAIN:-}" ]; then again "$scenario"; else capture "$scenario"; fi
    for d in "${disks[@]}"; do losetup -d "$d"; done
    disks=()
    echo "$scenario"
done
