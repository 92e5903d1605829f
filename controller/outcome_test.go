package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// laterRequests are what may be asked for the second time, under the name of wanted.
var laterRequests = map[string]func(*csi.CreateVolumeRequest){
	"wanted elsewhere":           func(r *csi.CreateVolumeRequest) { r.AccessibilityRequirements = requisite("node-2") },
	"the class has a typo":       set("volumegroup", "vg-nvme"),
	"the class is another group": set("volumeGroup", "vg-sata"),
	"the class is no group":      set("volumeGroup", "vg-tape"),
	"the class wipes nothing":    set("wipe", "none"),
	"another size":               size(6<<30, 0),
	"another access mode":        capability(mountCapability("", csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)),
	"a source that is no handle": source("garbage", ""),
	"a source of another node":   func(r *csi.CreateVolumeRequest) { set("layout", "thin")(r); source(elsewhereSnapshot, "")(r) },
}

// Whatever is asked for later, an error does not let the provisioner forget a volume that it does not know of: its caller had
// gone, or the driver was restarted.
func TestCreateErrorWhileVolumeMayExist(t *testing.T) {
	for name, change := range laterRequests {
		t.Run(name, func(t *testing.T) {
			s, node := newTestServer(t)
			made := mustCreate(t, s, wanted())
			s = restarted(t, s, node)
			before := len(node.Commands())
			later := wanted()
			change(later)
			_, err := s.CreateVolume(t.Context(), later)
			expectKind(t, err, lvm.KindBusy, "vg-nvme/")
			if n := len(node.Commands()) - before; n != 0 {
				t.Errorf("%d LVM commands were run", n)
			}
			if again := mustCreate(t, s, wanted()); again.GetVolumeId() != made.GetVolumeId() {
				t.Errorf("made as %s, and found as %s", made.GetVolumeId(), again.GetVolumeId())
			}
			// Now its caller knows of it.
			_, err = s.CreateVolume(t.Context(), later)
			if kind := lvm.KindOf(err); !slices.Contains([]lvm.Kind{lvm.KindExists, lvm.KindInvalid, lvm.KindNotFound}, kind) {
				t.Errorf("of a volume that its caller knows: kind %d, %v", kind, err)
			}
		})
	}
}

// restarted is the driver after a restart of its pod.
func restarted(t *testing.T, s *Server, node *lvmtest.Node) *Server {
	t.Helper()
	must(t, s.volumes.(*host.Host).Close(t.Context()))
	host := node.Start(t, testConfig)
	return New(Config{NodeName: "node-1", Volumes: host, Snapshots: host, Cluster: s.cluster, CheckFileSystem: checkFileSystem})
}

// The first request's caller has gone, and lvcreate is still running: nothing that is asked for under the name is refused.
func TestCreateErrorWhileLvcreateRuns(t *testing.T) {
	for name, change := range laterRequests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, hold, release := heldServer(t, nil)
				s.cluster = nil
				hold()
				ctx, cancel := context.WithCancel(t.Context())
				first := make(chan error, 1)
				go func() {
					_, err := s.CreateVolume(ctx, wanted())
					first <- err
				}()
				synctest.Wait()
				cancel()
				if err := <-first; lvm.KindOf(err) != lvm.KindBusy {
					t.Fatal(err)
				}
				later := wanted()
				change(later)
				_, err := s.CreateVolume(t.Context(), later)
				expectKind(t, err, lvm.KindBusy)
				release()
			})
		})
	}
}

// A disk goes away while a volume is being made, and the request ends without an answer, or panics: whether it was made shows when the
// disk is back, and until then no other node may make it. What was never asked for here goes there at once.
func TestCreateErrorWhileAbsenceIsUnproven(t *testing.T) {
	for name, end := range map[string]func(){
		"no answer": func() {},
		"a panic":   func() { panic("index out of range") },
	} {
		t.Run(name, func(t *testing.T) {
			s, node := newTestServer(t)
			missing := func(is bool) {
				node.Change("vg-nvme", func(g *lvm.Group) { g.PVs[0].Missing = is })
			}
			s.volumes = &vanishing{Volumes: s.volumes, vanish: func() { missing(true); end() }}
			survive(func() {
				_, err := s.CreateVolume(t.Context(), wanted())
				expectKind(t, err, lvm.KindBusy)
			})
			_, err := s.CreateVolume(t.Context(), wanted())
			expectKind(t, err, lvm.KindBusy, "vg-nvme")
			other := wanted()
			other.Name = "pvc-2"
			_, err = s.CreateVolume(t.Context(), other)
			expectKind(t, err, lvm.KindInsufficientCapacity)
			missing(false)
			mustCreate(t, s, wanted())
		})
	}
}

// vanishing lets the disks vanish when the first volume was to be made, so that its outcome is not known.
type vanishing struct {
	Volumes
	vanish func()
}

func (v *vanishing) CreateWithPeers(ctx context.Context, spec lvm.Spec, peers []lvm.Spec) (lvm.Volume, error) {
	if v.vanish == nil {
		return v.Volumes.CreateWithPeers(ctx, spec, peers)
	}
	vanish := v.vanish
	v.vanish = nil
	vanish()
	return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "volume %q: the operation continues", spec.Name)
}

// unreadable are the disks of a node that cannot be read.
type unreadable struct{ Volumes }

func (unreadable) Presence(context.Context, string) (lvm.Presence, error) {
	return lvm.Presence{}, lvm.Errorf(lvm.KindBusy, "whether it is there cannot be told: %w", errors.New("input/output error"))
}

// Where the disks cannot be read, nothing is taken for absent: neither by an error, nor where the pod's other claims are elsewhere.
func TestCreateErrorWithUnreadableDisks(t *testing.T) {
	a, b := claim("a", lvm.GiB, "vg-nvme"), claim("b", lvm.GiB, "vg-nvme")
	b.Node, b.Bound = "node-2", true
	s, pod, _ := newPod(t, a, b)
	s.volumes = unreadable{s.volumes}
	_, err := pod.create(t, s, a)
	expectKind(t, err, lvm.KindBusy, "input/output error")
	typo := wanted()
	set("wipe", "twice")(typo)
	_, err = s.CreateVolume(t.Context(), typo)
	expectKind(t, err, lvm.KindBusy, "input/output error", "twice")
}
