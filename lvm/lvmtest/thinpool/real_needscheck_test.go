//go:build reallvm

package thinpool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// poolLayer is a layer of the pool as device-mapper names it.
func poolLayer(b hosttest.Fixture, layer string) string {
	return strings.ReplaceAll(b.Group, "-", "--") + "-" + strings.ReplaceAll(lvm.DefaultPool, "-", "--") + layer
}

// needsCheck reports whether the kernel keeps the pool read-only until a check finds its metadata sound.
func needsCheck(t *testing.T, b hosttest.Fixture) bool {
	t.Helper()
	return strings.Contains(reallvm.Tool(t, "dmsetup", "status", poolLayer(b, "-tpool")), "needs_check")
}

// failCommit lets a commit of the pool fail: its volume gets new chunks, whose flush reaches a disk that fails all writes. The pool may have committed
// them before, so this writes to each MiB from one on.
func failCommit(t *testing.T, b hosttest.Fixture, device string, from lvm.Bytes) {
	t.Helper()
	name := poolLayer(b, "_tdata")
	data := reallvm.Tool(t, "dmsetup", "table", name)
	replace := func(table string) {
		t.Helper()
		reallvm.Tool(t, "dmsetup", "suspend", "--noflush", "--nolockfs", name)
		defer reallvm.Tool(t, "dmsetup", "resume", "--noudevsync", name)
		load := exec.CommandContext(t.Context(), "dmsetup", "load", name)
		load.Stdin = strings.NewReader(table)
		reallvm.Output(t, load)
	}
	var failing strings.Builder // the target error takes a flush
	for line := range strings.Lines(data) {
		failing.WriteString(strings.Replace(strings.TrimSpace(line), " linear ", " flakey ", 1) + " 0 60 1 error_writes\n")
	}
	var err error
	for at := from; at < from+4*lvm.MiB; at += lvm.MiB {
		err = onDevice(device, func(f *os.File) error {
			if _, err := f.WriteAt(bytes.Repeat([]byte("nodelvm "), 1<<10), int64(at)); err != nil {
				return err
			}
			replace(failing.String())
			return f.Sync()
		})
		failed := needsCheck(t, b) // dmsetup commits before it reads the status
		replace(data)
		if failed {
			return
		}
	}
	t.Fatalf("no commit of the pool failed without its disk; the last write and flush of its volume returned %v", err)
}

// onDevice opens a device without the page cache.
func onDevice(device string, do func(*os.File) error) error {
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.Close())
}

// TestRealPoolNeedsCheck: the kernel asks for a check of a pool after a commit that failed, for example because a disk with a part of the pool's data
// was pulled. A pool whose metadata thin_check finds sound takes writes again as soon as the driver activates one of its volumes. One whose
// metadata is damaged stays inactive and keeps the mark.
func TestRealPoolNeedsCheck(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	v := d.MustCreate(t, b.Thin("v", 40*lvm.MiB, lvm.ID{}))
	writeTo(t, d, v, lvm.MiB)
	d = b.Start(t) // no volume waits for its ready tag
	metadata := metadataOf(t, b)

	failCommit(t, b, d.MustActivate(t, v), 2*lvm.MiB)
	if !hosttest.HasCondition(d.Conditions(t), lvm.ConditionThinPoolFailed, v.UUID) {
		t.Error("no condition says that the pool takes no writes")
	}
	d.MustActivate(t, v) // as for the next pod
	if needsCheck(t, b) {
		t.Error("the pool still needs a check, and takes no writes")
	}
	if found := d.Conditions(t); len(found) > 0 {
		t.Errorf("conditions %+v", found)
	}
	writeTo(t, d, v, 12*lvm.MiB)

	failCommit(t, b, d.MustActivate(t, v), 20*lvm.MiB) // the first deactivation is killed before it has removed the pool's hidden devices
	for _, name := range []string{strings.ReplaceAll(b.Group, "-", "--") + "-" + strings.ReplaceAll(v.ID.LV, "-", "--"), poolLayer(b, "")} {
		if exec.CommandContext(t.Context(), "dmsetup", "info", name).Run() == nil { // LVM activates the pool itself only when it creates it
			reallvm.Tool(t, "dmsetup", "remove", "--noudevsync", "--retry", name)
		}
	}
	d.MustActivate(t, v)
	if needsCheck(t, b) {
		t.Error("after a killed deactivation, the pool still needs a check")
	}

	failCommit(t, b, d.MustActivate(t, v), 30*lvm.MiB)
	b.Admin(t, "lvchange", "-y", "-an", b.Group+"/"+v.ID.LV)
	b.Admin(t, "lvchange", "-y", "-an", b.Group+"/"+lvm.DefaultPool)
	restore := metadata.damage(t)
	if _, err := d.Activate(t.Context(), v.ID, v.UUID); err == nil || !strings.Contains(err.Error(), "repair") {
		t.Errorf("a pool with damaged metadata: %v", err)
	} else {
		t.Log(err)
	}
	if !metadata.needsCheck(t) {
		t.Error("the damaged pool lost its mark")
	}
	restore()
	d.MustActivate(t, v)
	if needsCheck(t, b) {
		t.Error("the pool still needs a check after its metadata was restored")
	}
	b.DeleteAll(t, d)
}

// poolMetadata is where a pool's metadata is on its disk.
type poolMetadata struct {
	disk     string
	at, size int64
}

// metadataOf finds the metadata of the active pool.
func metadataOf(t *testing.T, b hosttest.Fixture) (m poolMetadata) {
	t.Helper()
	var number string
	var begin int64
	table := reallvm.Tool(t, "dmsetup", "table", poolLayer(b, "_tmeta"))
	if _, err := fmt.Sscanf(table, "%d %d linear %s %d", &begin, &m.size, &number, &m.at); err != nil {
		t.Fatalf("%q: %v", table, err)
	}
	link, err := os.Readlink("/sys/dev/block/" + number)
	hosttest.Must(t, err)
	m.disk, m.at, m.size = "/dev/"+filepath.Base(link), m.at*512, m.size*512
	return m
}

// damage overwrites all blocks but the superblock.
func (m poolMetadata) damage(t *testing.T) (restore func()) {
	t.Helper()
	const superblock = 4096
	saved := reallvm.ReadAt(t, m.disk, m.at+superblock, int(m.size-superblock))
	write := func(content []byte) {
		t.Helper()
		hosttest.Must(t, onDevice(m.disk, func(f *os.File) error {
			_, err := f.WriteAt(content, m.at+superblock)
			return err
		}))
	}
	write(make([]byte, len(saved)))
	return func() { write(saved) }
}

// needsCheck reports whether the superblock has the mark (Linux, drivers/md/dm-thin-metadata.c, THIN_METADATA_NEEDS_CHECK_FLAG).
func (m poolMetadata) needsCheck(t *testing.T) bool {
	t.Helper()
	return binary.LittleEndian.Uint32(reallvm.ReadAt(t, m.disk, m.at, 4096)[4:])&1 != 0
}
