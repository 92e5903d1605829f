//go:build realfs

package node

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// chosenLUKSDamages hit the two headers, the key slots behind them, the driver's mark before the data, and the beginning of the file system.
var chosenLUKSDamages = []damage{
	{name: "the magic number", at: 0, length: 6}, {name: "the version", at: 6, length: 2, noise: true}, {name: "the first header", at: 0, length: 16 << 10},
	{name: "both headers", at: 0, length: 32 << 10}, {name: "noise in both headers", at: 0, length: 32 << 10, noise: true},
	{name: "a chunk of 1 MiB", at: 0, length: 1 << 20}, {name: "all before the data", at: 0, length: 16 << 20}, {name: "all before the data, noise", at: 0, length: 16 << 20, noise: true},
	{name: "the driver's mark", at: 15 << 20, length: 4 << 10}, {name: "all before the data, and the superblock", at: 0, length: 17 << 20},
}

// luksRepairs are what a message can name, beside the repair of a file system. A damaged key slot looks like a wrong key.
var luksRepairs = regexp.MustCompile(repairs.String() + `|luksHeaderRestore|the key in the Secret does not open`)

// stageEncrypted stages the encrypted volume "v" with a file system of ext4.
func (b *bench) stageEncrypted(path string) error {
	_, err := b.NodeStageVolume(b.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: vgUUID + "/v", StagingTargetPath: path, VolumeCapability: capability("ext4", rw),
		VolumeContext: map[string]string{api.AttributeUUID: "uuid-of-v", api.AttributeEncryption: string(lvm.EncryptionLUKS2)},
		Secrets:       map[string]string{"key": "0123456789abcdefghijklmnopqrstuvwxyz"},
	})
	return err
}

// close unmounts the volume "v" and closes its mapping.
func (b *bench) close(path string) {
	b.t.Helper()
	b.umount(path)
	b.must(b.encryption.Unstage(b.t.Context(), vgUUID+"/v"))
}

// TestDamagedLUKSIsNeverFormatted is TestDamagedFileSystemIsNeverFormatted for an encrypted volume: neither its logical volume nor its mapping
// is formatted again.
func TestDamagedLUKSIsNeverFormatted(t *testing.T) {
	const size = 64
	b := newBench(t)
	b.created("v", size)
	b.must(b.stageEncrypted(b.path("staging")))
	b.keep(b.path("staging"), "the user's data")
	b.close(b.path("staging"))
	if b.isMarked("v") {
		t.Fatal("the logical volume has its format mark")
	}
	random := rand.New(rand.NewPCG(1, size))
	damages := append([]damage(nil), chosenLUKSDamages...)
	for range randomDamages {
		damages = append(damages, randomDamage(random, 18*megabytes))
	}
	refused := 0
	for i, d := range damages {
		refused += b.damagedLUKS(fmt.Sprintf("d%d", i), d)
	}
	t.Logf("%d of %d damages are refused", refused, len(damages))
}

// damagedLUKS damages a copy of the volume "v" and stages it. It returns 1 if the driver refuses that.
func (b *bench) damagedLUKS(name string, d damage) (refused int) {
	b.t.Helper()
	defer b.damagedCopy(name, d)()
	staging := b.path("again-" + name)
	err := b.stageEncrypted(staging)
	switch {
	case err != nil && !luksRepairs.MatchString(err.Error()):
		b.t.Errorf("%q, %d bytes at %d, noise %t: the message names no repair: %v", d.name, d.length, d.at, d.noise, err)
	case err != nil && d.name != "":
		b.t.Logf("%s: %v", d.name, err)
	}
	if err != nil {
		b.must(b.encryption.Unstage(b.t.Context(), vgUUID+"/v"))
		return 1
	}
	if text, err := os.ReadFile(filepath.Join(staging, "kept")); d.at+d.length <= 16<<20 && (err != nil || string(text) != "the user's data") {
		b.t.Errorf("%q, %d bytes at %d: the file reads %q, %v", d.name, d.length, d.at, text, err)
	}
	b.close(staging)
	return 0
}
