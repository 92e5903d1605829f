package controller

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

const (
	manyReaders = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	oneReader   = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
)

// TestAccessOfCopies: only a copy for readers alone is read-only, and only one with a file system has a journal to replay.
func TestAccessOfCopies(t *testing.T) {
	for what, test := range map[string]struct {
		uses []*csi.VolumeCapability
		want lvm.Access
	}{
		"many readers":         {[]*csi.VolumeCapability{mountCapability("xfs", manyReaders)}, lvm.AccessReplay},
		"one reader":           {[]*csi.VolumeCapability{mountCapability("", oneReader)}, lvm.AccessReplay},
		"raw":                  {[]*csi.VolumeCapability{blockCapability(manyReaders)}, lvm.AccessReadOnly},
		"both":                 {[]*csi.VolumeCapability{blockCapability(manyReaders), mountCapability("", manyReaders)}, lvm.AccessReplay},
		"writers":              {[]*csi.VolumeCapability{mountCapability("", writer)}, lvm.AccessWritable},
		"a reader and writers": {[]*csi.VolumeCapability{mountCapability("", oneReader), mountCapability("", writer)}, lvm.AccessWritable},
	} {
		req := copyRequest("pvc-1", elsewhere[:strings.IndexByte(elsewhere, '/')]+"/"+lvm.SnapshotName("s"), 1<<30)
		req.VolumeCapabilities = test.uses
		if spec, _, err := parser.parseCreate(req); err != nil || spec.Access != test.want {
			t.Errorf("%s: %q, %v; want %q", what, spec.Access, err, test.want)
		}
	}
}

// TestReadOnlyCopy: the lifecycle of a read-only copy here, of a snapshot and of a volume.
func TestReadOnlyCopy(t *testing.T) {
	s, pod, _, snapshot := newRestores(t)
	s.checkMountOptions = checkMountOptions
	req := copyRequest("pvc-1", snapshot, 1<<30)
	req.VolumeCapabilities = []*csi.VolumeCapability{mountCapability("", manyReaders)}
	pod.restores[restoreClaim+"1 "+snapshot] = lvm.Errorf(lvm.KindInvalid, "another's")
	_, err := s.CreateVolume(t.Context(), req)
	expectKind(t, err, lvm.KindInvalid, "another's")
	clear(pod.restores)
	skipping := copyRequest("pvc-1", snapshot, 1<<30)
	skipping.VolumeCapabilities = []*csi.VolumeCapability{mountCapability("", manyReaders)}
	skipping.VolumeCapabilities[0].GetMount().MountFlags = []string{"noload"} // staging would refuse it
	_, err = s.CreateVolume(t.Context(), skipping)
	expectKind(t, err, lvm.KindInvalid, "the mountOptions of the StorageClass", "noload")
	made := mustCreate(t, s, req)
	if again := mustCreate(t, s, req); again.GetVolumeId() != made.GetVolumeId() || made.GetContentSource() == nil {
		t.Errorf("made %v, and again %v", made, again)
	}
	writable := copyRequest("pvc-1", snapshot, 1<<30)
	_, err = s.CreateVolume(t.Context(), writable)
	expectKind(t, err, lvm.KindExists, "read-only", "writable")
	larger := copyRequest("pvc-2", snapshot, 2<<30)
	larger.VolumeCapabilities = req.GetVolumeCapabilities()
	_, err = s.CreateVolume(t.Context(), larger)
	expectKind(t, err, lvm.KindOutOfRange, "request 1073741824 bytes")
	_, err = s.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: made.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 30}, VolumeCapability: req.GetVolumeCapabilities()[0]})
	expectKind(t, err, lvm.KindOutOfRange, "read-only copy", "clone")
	mustSnapshot(t, s, "of-a-copy", made.GetVolumeId())

	ordinary := mustCreate(t, s, copyRequest("pvc-3", snapshot, 1<<30))
	for what, test := range map[string]struct {
		volume string
		mode   csi.VolumeCapability_AccessMode_Mode
		says   string
	}{
		"a copy for readers":      {made.GetVolumeId(), manyReaders, ""},
		"a copy for a reader":     {made.GetVolumeId(), oneReader, ""},
		"a copy for writers":      {made.GetVolumeId(), writer, "its only access mode is ReadOnlyMany"},
		"a volume for readers":    {ordinary.GetVolumeId(), manyReaders, "the volume is writable"},
		"a volume for one reader": {ordinary.GetVolumeId(), oneReader, ""},
	} {
		reply, err := s.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: test.volume, VolumeCapabilities: []*csi.VolumeCapability{mountCapability("", test.mode)}})
		if err != nil || (reply.GetConfirmed() != nil) != (test.says == "") || !strings.Contains(reply.GetMessage(), test.says) {
			t.Errorf("%s: %v, %v", what, reply, err)
		}
	}
}
