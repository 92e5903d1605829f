//go:build innode

package innode

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

var background = context.Background()

// lvNames is volumes for clean-ups, where t.Context has ended.
func lvNames(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(background, realLVM, "lvs", "--noheadings", "-o", "lv_name").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

func TestRepeatedCreateGivesSameReply(t *testing.T) {
	c := connect(t)
	request := createRequest("pvc-11111111-2222-3333-4444-555555555555", 64*mebibyte)
	first := c.create(t, request)
	settled(t)
	before := seqnos(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			again, err := c.CreateVolume(background, request)
			if err != nil {
				t.Errorf("repetition %d: %v", i, err)
			} else if !proto.Equal(first, again.GetVolume()) {
				t.Errorf("repetition %d answers %v, the first %v", i, again.GetVolume(), first)
			}
		})
	}
	wg.Wait()
	if after := seqnos(t); after != before {
		t.Errorf("the repetitions changed a group: %q before, %q after", before, after)
	}
	_, err := c.CreateVolume(t.Context(), createRequest(request.GetName(), 128*mebibyte))
	if status.Code(err) != codes.AlreadyExists {
		t.Errorf("another size under the same name: %v, want AlreadyExists", err)
	}
}

func TestConcurrentCreatesGiveOneVolume(t *testing.T) {
	c := connect(t)
	request := createRequest("at-once", 64*mebibyte)
	var mu sync.Mutex
	ids := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				reply, err := c.CreateVolume(background, request)
				if status.Code(err) == codes.Aborted {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				ids[reply.GetVolume().GetVolumeId()+reply.GetVolume().GetVolumeContext()["nodelvm.io/lv-uuid"]] = true
				mu.Unlock()
				return
			}
		})
	}
	wg.Wait()
	c.create(t, request) // its clean-up deletes the volume
	if len(ids) != 1 || len(volumes(t)) != 1 {
		t.Errorf("eight creates at once gave the answers %v and the volumes %v", ids, volumes(t))
	}
}

func TestDeletedDataIsNotSeenByTheNextVolume(t *testing.T) {
	c := connect(t)
	block := func(r *csi.CreateVolumeRequest) {
		r.VolumeCapabilities = []*csi.VolumeCapability{blockCapability()}
		r.Parameters["volumeGroup"] = "vg-a"
	}
	const size = 64 * mebibyte
	pattern := bytes.Repeat([]byte("secret! "), mebibyte/8)

	first, err := c.CreateVolume(t.Context(), createRequest("first", size, block))
	if err != nil {
		t.Fatal(err)
	}
	func() {
		staging, target := c.mountedOnce(t, first.GetVolume(), blockCapability())
		defer c.unmount(t, first.GetVolume(), staging, target)
		f, err := os.OpenFile(target, os.O_WRONLY|os.O_SYNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range size / len(pattern) {
			if _, err := f.Write(pattern); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}()
	c.remove(t, first.GetVolume().GetVolumeId())

	second := c.create(t, createRequest("second", size, block))
	_, target := c.mounted(t, second, blockCapability())
	f, err := os.Open(target)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	seen, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != size {
		t.Fatalf("the second volume has %d bytes, want %d", len(seen), size)
	}
	if i := bytes.IndexFunc(seen, func(r rune) bool { return r != 0 }); i >= 0 {
		t.Errorf("the second volume is not zero at byte %d", i)
	}
}

func TestForeignContentIsNeverFormatted(t *testing.T) {
	c := connect(t)
	makers := map[string][]string{
		"swap":            {"mkswap"},
		"a LUKS header":   {"cryptsetup", "luksFormat", "-q", "--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", "/proc/version"},
		"btrfs":           {"mkfs.btrfs", "-q"},
		"xfs, not ext4":   {"mkfs.xfs", "-q", "-f"},
		"an LVM2 PV":      {"pvcreate", "-qq", "-y", "--config", `devices{scan_lvs=1}`},
		"unknown content": nil,
	}
	number := 0
	for what, maker := range makers {
		number++
		t.Run(what, func(t *testing.T) {
			size := int64(64 * mebibyte)
			switch what {
			case "btrfs":
				size = 112 * mebibyte
			case "xfs, not ext4":
				size = 304 * mebibyte
			}
			v := c.create(t, createRequest(fmt.Sprintf("foreign-%d", number), size, with("wipe", "none")))
			settled(t) // until then the driver writes to the volume
			device := c.activeDevice(t, v)
			if maker != nil {
				output(t, maker[0], append(maker[1:], device)...)
			} else {
				noise(t, device)
			}
			before := ends(t, device)
			staging := t.TempDir()
			_, err := c.NodeStageVolume(t.Context(), stageRequest(v, staging, mountCapability("ext4")))
			if status.Code(err) != codes.FailedPrecondition {
				t.Errorf("stage answers %v, want FailedPrecondition", err)
			}
			t.Logf("it says: %v", err)
			if ends(t, device) != before {
				t.Error("the device was changed")
			}
		})
	}
}

// ends sums up the first and the last 8 MiB of a device, where every mkfs and every wipe writes.
func ends(t *testing.T, device string) [sha256.Size]byte {
	t.Helper()
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const part = 8 * mebibyte
	data := make([]byte, 2*part)
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	for i, at := range []int64{0, size - part} {
		if _, err := f.ReadAt(data[i*part:(i+1)*part], at); err != nil {
			t.Fatal(err)
		}
	}
	return sha256.Sum256(data)
}

// noise fills the head of a device with bytes that no tool knows.
func noise(t *testing.T, device string) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY|os.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(f, rand.Reader, mebibyte); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// activeDevice finds a volume's device the way an admin does.
func (c client) activeDevice(t *testing.T, v *csi.Volume) string {
	t.Helper()
	path := output(t, realLVM, "lvs", "--noheadings", "-o", "lv_dm_path", "--select", "lv_name="+filepath.Base(v.GetVolumeId()))
	var device string
	eventually(t, time.Minute, path+" exists", func() (ok bool) { // udev creates it, some time after the volume is active
		var err error
		device, err = filepath.EvalSymlinks(path)
		return err == nil
	})
	return device
}

func TestStagingPathInUse(t *testing.T) {
	c := connect(t)
	v := c.create(t, createRequest("taken", 64*mebibyte))
	staging := t.TempDir()
	if err := command("mount", "-t", "tmpfs", "another", staging); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := command("umount", staging); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(staging, "theirs"), []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := c.NodeStageVolume(t.Context(), stageRequest(v, staging, mountCapability("ext4")))
	if err == nil {
		t.Fatal("a staging path with another mount on it was accepted")
	}
	t.Logf("it says: %v", err)
	if text, err := os.ReadFile(filepath.Join(staging, "theirs")); err != nil || string(text) != "keep" {
		t.Errorf("what was there before now reads %q, %v", text, err)
	}
	if blkid, err := exec.CommandContext(t.Context(), "blkid", "-p", c.activeDevice(t, v)).Output(); err == nil {
		t.Errorf("the volume was formatted all the same: %s", blkid)
	}
}

func TestMemoryWithFiftyVolumes(t *testing.T) {
	c := connect(t)
	var requests []*csi.CreateVolumeRequest
	for i := range 50 {
		requests = append(requests, createRequest(fmt.Sprintf("fifty-%d", i), 8*mebibyte, with("wipe", "none")))
	}
	c.createAll(t, requests...)
	reply, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(reply.GetEntries()); n != 50 {
		t.Fatalf("ListVolumes shows %d volumes, want 50", n)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", driverPID))
	if err != nil {
		t.Fatal(err)
	}
	var resident int
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscan(rest, &resident); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("resident memory with 50 volumes: %.1f MiB", float64(resident)/1024)
	if resident == 0 || resident > 40*1024 {
		t.Errorf("resident memory is %d KiB, want at most 40 MiB", resident)
	}
}
