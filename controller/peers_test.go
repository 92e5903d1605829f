package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// cluster is one pod, web in the namespace shop, and its claims.
type cluster struct {
	claims   []api.PodClaim // of the pod
	pods     []string       // several that share claims; none: web alone
	others   api.PodClaims  // Of the claim far, which another pod uses.
	down     error          // the API server's
	warnings []string       // "claim reason: message"
	gone     bool           // the claims are no longer waiting
	asked    []string       // "asked claim", "answered claim"
	mu       sync.Mutex     // held while one of the two lists above grows: requests run side by side

	owned    map[string]error // why volumes may not be deleted, by handle
	restores map[string]error // Why claims may not become copies of a snapshot, by "claim uid snapshot".
	empties  map[string]error // Why claims may not have an empty volume, by "claim uid".

	sources map[string]string // nodes, by the name of a VolumeSnapshot or claim; "?": not known yet
	sought  []string          // the sources that were asked for
}

func (c *cluster) SourceNode(_ context.Context, namespace string, of api.PodClaim) (string, error) {
	source := of.FromSnapshot + of.FromClaim
	c.say(&c.sought, namespace+"/"+source)
	if c.sources[source] == "?" {
		return "", lvm.Errorf(lvm.KindBusy, "%s is not ready", source)
	}
	return c.sources[source], nil
}

func (c *cluster) Asked(namespace, claim string) (answered func()) {
	c.say(&c.asked, "asked "+namespace+"/"+claim)
	return func() { c.say(&c.asked, "answered "+namespace+"/"+claim) }
}

func (c *cluster) PodClaims(_ context.Context, namespace, claim string) (api.PodClaims, error) {
	if claim == "far" {
		return c.others, c.down
	}
	claims := api.PodClaims{Pods: c.pods, PodUID: "web-uid"}
	if len(c.pods) == 0 {
		claims.Pods = []string{"web"}
	}
	for _, s := range c.claims {
		if namespace == "shop" && s.Name != claim {
			claims.Claims = append(claims.Claims, s)
		}
	}
	return claims, c.down
}

func (c *cluster) Waiting(string, string, string) bool     { return !c.gone }
func (c *cluster) WaitingHere(string, string, string) bool { return false }

func (c *cluster) MayCreate(namespace, claim, uid string) error {
	return c.empties[namespace+"/"+claim+" "+uid]
}

func (c *cluster) MayRestore(_ context.Context, namespace, claim, uid string, of lvm.ID) error {
	return c.restores[namespace+"/"+claim+" "+uid+" "+of.String()]
}

func (c *cluster) MayDelete(_ context.Context, of lvm.ID) error { return c.owned[of.String()] }

func (c *cluster) NameThinClass(err error) error {
	if errors.Is(err, lvm.ErrThick) {
		return lvm.Errorf(lvm.KindOf(err), "%w; local-thin", err)
	}
	return err
}

func (c *cluster) Warn(_ context.Context, namespace, claim, uid, reason, message string) {
	c.say(&c.warnings, namespace+"/"+claim+" "+uid+" "+reason+": "+message)
}

func (c *cluster) say(to *[]string, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*to = append(*to, line)
}

// claim is one of the pod's that node-1 is selected for.
func claim(name string, size lvm.Bytes, group string) api.PodClaim {
	return api.PodClaim{Name: name, UID: name + "-uid", Node: "node-1", Size: int64(size), AccessModes: []string{"ReadWriteOnce"},
		Parameters: map[string]string{"volumeGroup": group}}
}

// create makes the claim's volume as csi-provisioner asks for it.
func (c *cluster) create(t *testing.T, s *Server, claim api.PodClaim) (*csi.Volume, error) {
	t.Helper()
	reply, err := s.CreateVolume(t.Context(), requestOf(claim, "shop"))
	return reply.GetVolume(), err
}

func newPod(t *testing.T, claims ...api.PodClaim) (*Server, *cluster, *clock) {
	t.Helper()
	s, _ := newTestServer(t)
	pod, c := &cluster{claims: claims}, newClock()
	s.cluster, s.refusals = pod, newRefusals(c.now)
	return s, pod, c
}

// published is the largest volume that the scheduler believes possible.
func published(t *testing.T, s *Server, group string) lvm.Bytes {
	t.Helper()
	reply, err := s.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"volumeGroup": group}})
	must(t, err)
	return lvm.Bytes(reply.GetMaximumVolumeSize().GetValue())
}

func volumesOf(t *testing.T, s *Server) int {
	t.Helper()
	list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	must(t, err)
	return len(list.GetEntries())
}

// The pod that is stuck with others' drivers: each of its claims has room here (40 GiB), both together have not.
func TestPodClaimsThatDoNotFit(t *testing.T) {
	a, b := claim("a", 25*lvm.GiB, "vg-nvme"), claim("b", 20*lvm.GiB, "vg-nvme")
	s, pod, c := newPod(t, a, b)
	for _, claim := range []api.PodClaim{b, a, b, a} {
		_, err := pod.create(t, s, claim)
		expectKind(t, err, lvm.KindInsufficientCapacity, "pod web", "a and b", "node-1")
	}
	if n := volumesOf(t, s); n != 0 {
		t.Errorf("%d volumes were left behind", n)
	}
	if len(pod.warnings) != 0 {
		t.Errorf("another node can help, and yet: %v", pod.warnings)
	}
	if room := published(t, s, "vg-nvme"); room != sizeOf(a)-1 {
		t.Errorf("the scheduler is told of %d bytes, want one less than claim a's", room)
	}
	if room := published(t, s, "vg-sata"); room < 99*lvm.GiB {
		t.Errorf("the other group is said to have %s", room)
	}
	c.pass(withheldFor)
	if room := published(t, s, "vg-nvme"); room <= sizeOf(a) {
		t.Errorf("after a while the scheduler is still told of %s", room)
	}
}

func sizeOf(c api.PodClaim) lvm.Bytes { return lvm.Bytes(c.Size) }

// Whoever is refused was not overlooked, whatever is wrong with what it asks for.
func TestClusterSeesEachRequestAndItsEnd(t *testing.T) {
	s, pod, _ := newPod(t)
	for name, change := range map[string]func(*csi.CreateVolumeRequest){
		"typo":      func(r *csi.CreateVolumeRequest) { r.Parameters["volumegroup"] = "vg-nvme" },
		"elsewhere": func(r *csi.CreateVolumeRequest) { r.AccessibilityRequirements = requisite("node-2") },
		"made":      func(*csi.CreateVolumeRequest) {},
	} {
		pod.asked = nil
		req := requestOf(claim(name, lvm.GiB, "vg-nvme"), "shop")
		change(req)
		if _, err := s.CreateVolume(t.Context(), req); (err == nil) != (name == "made") {
			t.Errorf("%s: %v", name, err)
		}
		if want := []string{"asked shop/" + name, "answered shop/" + name}; !slices.Equal(pod.asked, want) {
			t.Errorf("the cluster is told %q, want %q", pod.asked, want)
		}
	}
}

func requisite(node string) *csi.TopologyRequirement {
	return &csi.TopologyRequirement{Requisite: []*csi.Topology{topologyOf(node)}}
}

// What ends the while early: room for all, a claim that went elsewhere, and a success.
func TestWithheldCapacityReturnsEarly(t *testing.T) {
	a, b := claim("a", 25*lvm.GiB, "vg-nvme"), claim("b", 14*lvm.GiB, "vg-nvme")
	stranger := claim("stranger", 10*lvm.GiB, "vg-nvme")
	for what, end := range map[string]func(*testing.T, *Server, *cluster, *csi.Volume){
		"room for all": func(t *testing.T, s *Server, _ *cluster, v *csi.Volume) {
			if _, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()}); err != nil {
				t.Fatal(err)
			}
		},
		"the claims are bound elsewhere": func(_ *testing.T, _ *Server, pod *cluster, _ *csi.Volume) { pod.gone = true },
		"one claim is given up, and the other fits": func(t *testing.T, s *Server, pod *cluster, _ *csi.Volume) {
			pod.claims = []api.PodClaim{a}
			mustCreate(t, s, requestOf(a, "shop"))
			pod.claims = []api.PodClaim{a, b}
		},
	} {
		t.Run(what, func(t *testing.T) {
			s, pod, _ := newPod(t)
			stranger.Parameters = map[string]string{"volumeGroup": "vg-nvme", "wipe": "none"} // its room is free when it is deleted
			v, err := pod.create(t, s, stranger)
			must(t, err)
			pod.claims = []api.PodClaim{a, b}
			_, err = pod.create(t, s, a)
			expectKind(t, err, lvm.KindInsufficientCapacity)
			if room := published(t, s, "vg-nvme"); room != sizeOf(a)-1 {
				t.Fatalf("%s are published", room)
			}
			end(t, s, pod, v)
			capacity, err := s.volumes.Capacity(t.Context(), lvm.Class{Group: "vg-nvme", Layout: lvm.LayoutLinear})
			must(t, err)
			if room := published(t, s, "vg-nvme"); room != capacity.Largest {
				t.Errorf("%s are published, there are %s", room, capacity.Largest)
			}
		})
	}
}

// All claims are made where all have room, in whatever order they are asked for, and another pod's claim does not get between.
func TestPodClaimsThatFit(t *testing.T) {
	a, b := claim("a", 25*lvm.GiB, "vg-nvme"), claim("b", 14*lvm.GiB, "vg-nvme")
	b.Node = "" // the scheduler writes one annotation after the other
	s, _, _ := newPod(t, a, b)
	mustCreate(t, s, requestOf(a, "shop"))
	if room := published(t, s, "vg-nvme"); room >= 2*lvm.GiB {
		t.Errorf("%s are published: the peer's room is not kept", room)
	}
	mustCreate(t, s, requestOf(b, "shop"))
	if n := volumesOf(t, s); n != 2 {
		t.Errorf("%d volumes, want 2", n)
	}
}

// A peer is read as its own request will be: what the reservation is for is what is made.
func TestPeerSpecEqualsItsRequest(t *testing.T) {
	s, _ := newTestServer(t)
	for name, change := range map[string]func(*api.PodClaim){
		"plain":     func(*api.PodClaim) {},
		"block":     func(c *api.PodClaim) { c.Block = true },
		"single":    func(c *api.PodClaim) { c.AccessModes = []string{"ReadWriteOncePod"} },
		"striped":   func(c *api.PodClaim) { c.Parameters["layout"] = "striped"; c.Parameters["stripes"] = "2" },
		"xfs":       func(c *api.PodClaim) { c.Parameters["csi.storage.k8s.io/fstype"] = "xfs" },
		"thin":      func(c *api.PodClaim) { c.Parameters["layout"] = "thin" },
		"no wiping": func(c *api.PodClaim) { c.Parameters["wipe"] = "none" },
	} {
		c := claim("a", lvm.GiB, "vg-sata")
		change(&c)
		capability := mountCapability(c.Parameters["csi.storage.k8s.io/fstype"], csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER)
		switch {
		case c.Block:
			capability = blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER)
		case c.AccessModes[0] == "ReadWriteOncePod":
			capability.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
		// As csi-provisioner makes it: the class' own keys of Kubernetes are taken out, the claim's names put in.
		parameters := maps.Clone(c.Parameters)
		maps.DeleteFunc(parameters, func(key, _ string) bool { return strings.HasPrefix(key, api.ParameterPrefix) })
		maps.Copy(parameters, map[string]string{
			"csi.storage.k8s.io/pvc/name": "a", "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": "pvc-a-uid",
		})
		own, _, err := s.parseCreate(&csi.CreateVolumeRequest{
			Name: "pvc-a-uid", CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30},
			VolumeCapabilities: []*csi.VolumeCapability{capability}, Parameters: parameters,
		})
		if err != nil {
			t.Fatal(name, err)
		}
		read := s.specsOf(lvm.Spec{Claim: "shop/b"}, api.PodClaims{Claims: []api.PodClaim{c}})
		if diff := cmp.Diff([]lvm.Spec{own}, read); diff != "" {
			t.Errorf("%s (-its own request +as a peer):\n%s", name, diff)
		}
	}
}

// TestReadOnlyPeer: the claims of a pod with a read-only copy are created together or not at all. The copy counts as it will in its pool.
func TestReadOnlyPeer(t *testing.T) {
	a, readers := claim("a", 39*lvm.GiB, "vg-nvme"), claim("readers", 32*lvm.GiB, "vg-nvme")
	for _, c := range []*api.PodClaim{&a, &readers} {
		c.Parameters = map[string]string{"volumeGroup": "vg-nvme", "layout": "thin"}
	}
	readers.AccessModes = []string{"ReadOnlyMany"}
	for name, test := range map[string]struct {
		change func(c *api.PodClaim)
		size   lvm.Bytes // what it counts; 0: nothing, because its own request is refused
	}{
		"of a snapshot":       {func(c *api.PodClaim) { c.FromSnapshot = "s" }, lvm.GiB / 2},
		"of a claim":          {func(c *api.PodClaim) { c.FromClaim = "s" }, 32 * lvm.GiB},
		"raw":                 {func(c *api.PodClaim) { c.FromSnapshot, c.Block = "s", true }, lvm.GiB / 2},
		"of nothing":          {func(*api.PodClaim) {}, 0},
		"with a writable one": {func(c *api.PodClaim) { c.FromClaim, c.AccessModes = "s", []string{"ReadOnlyMany", "ReadWriteOnce"} }, 0},
		"not thin":            {func(c *api.PodClaim) { c.FromClaim, c.Parameters = "s", map[string]string{"volumeGroup": "vg-nvme"} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			peer := readers
			test.change(&peer)
			s, pod, _ := newPod(t, a, peer)
			specs := s.specsOf(lvm.Spec{Claim: "shop/a"}, api.PodClaims{Claims: []api.PodClaim{peer}})
			if (len(specs) == 1) != (test.size > 0) || test.size > 0 && specs[0].Required != test.size {
				t.Fatalf("it counts as %+v", specs)
			}
			if _, err := pod.create(t, s, a); (err == nil) != (test.size < lvm.GiB) {
				t.Errorf("beside it a claim of 39 GiB of 40: %v", err)
			}
		})
	}
	s, pod, _ := newPod(t, a, readers)
	elsewhere := readers
	elsewhere.FromSnapshot, elsewhere.Node = "s", "node-2"
	pod.claims = []api.PodClaim{a, elsewhere}
	_, err := pod.create(t, s, a)
	expectKind(t, err, lvm.KindInsufficientCapacity, "claim readers", "node-2")
}

// A peer that is bound, or that this driver can never provide, does not prevent this volume. The peer's request gets the error.
func TestBoundAndInvalidPeersAreIgnored(t *testing.T) {
	typo, many, bound := claim("typo", lvm.GiB, "vg-nvme"), claim("many", lvm.GiB, "vg-nvme"), claim("bound", 30*lvm.GiB, "vg-nvme")
	typo.Parameters["layuot"] = "thin"
	many.AccessModes = []string{"ReadWriteMany"}
	bound.Bound = true
	a := claim("a", 25*lvm.GiB, "vg-nvme")
	s, pod, _ := newPod(t, a, typo, many, bound)
	if _, err := pod.create(t, s, a); err != nil {
		t.Error(err)
	}
	_, err := pod.create(t, s, typo)
	expectKind(t, err, lvm.KindInvalid, "layuot")
}

// TestPeerBoundByOthers: no request ever uses the capacity of a claim that a volume populator or a restore tool binds. The other claims of
// the pod follow it to its node.
func TestPeerBoundByOthers(t *testing.T) {
	a := claim("a", 25*lvm.GiB, "vg-nvme")
	filled := api.PodClaim{Name: "filled", UID: "filled-uid", Node: "node-1", ByOthers: true, Size: int64(30 * lvm.GiB), AccessModes: a.AccessModes, Parameters: a.Parameters}
	s, pod, _ := newPod(t, a, filled)
	before := published(t, s, "vg-nvme")
	mustCreate(t, s, requestOf(a, "shop"))
	if room := published(t, s, "vg-nvme"); before-room > 26*lvm.GiB {
		t.Errorf("%s are published after %s: the filled claim reserves capacity", room, before)
	}
	b := claim("b", lvm.GiB, "vg-nvme")
	filled.Node = "node-2"
	pod.claims = []api.PodClaim{b, filled}
	_, err := pod.create(t, s, b)
	expectKind(t, err, lvm.KindInsufficientCapacity, "claim filled", "is about to be created on node node-2")
	filled.Node = ""
	pod.claims = []api.PodClaim{b, filled}
	if _, err := pod.create(t, s, b); err != nil {
		t.Errorf("no node is selected for the filled claim: %v", err)
	}
}

// Who is asked for on this node while a peer is on another one is sent after it.
func TestCreateRefusedWhilePeerIsElsewhere(t *testing.T) {
	a, b, c := claim("a", lvm.GiB, "vg-nvme"), claim("b", lvm.GiB, "vg-nvme"), claim("c", lvm.GiB, "vg-nvme")
	b.Node = "node-2"
	s, pod, _ := newPod(t, a, b)
	_, err := pod.create(t, s, a)
	expectKind(t, err, lvm.KindInsufficientCapacity, "claim b", "is about to be created on node node-2")
	b.Bound = true
	pod.claims = []api.PodClaim{a, b}
	_, err = pod.create(t, s, a)
	expectKind(t, err, lvm.KindInsufficientCapacity, "claim b", "is bound", "node-2")
	if len(pod.warnings) != 0 {
		t.Errorf("the scheduler can mend this, and yet: %v", pod.warnings)
	}
	if room := published(t, s, "vg-nvme"); room < 39*lvm.GiB {
		t.Errorf("nothing is full here, and %s are published", room)
	}

	c.Bound = true
	pod.claims = []api.PodClaim{a, b, c}
	_, err = pod.create(t, s, a)
	expectKind(t, err, lvm.KindInsufficientCapacity, "node-2")
	expectWarning(t, pod, "shop/a a-uid PodVolumesOnDifferentNodes: ", "claim c is on node node-1", "claim b on node node-2", "Move the volume of claim b to node node-1", "Or delete")
	if n := volumesOf(t, s); n != 0 {
		t.Errorf("%d volumes were made", n)
	}
}

func expectWarning(t *testing.T, pod *cluster, begins string, says ...string) {
	t.Helper()
	if len(pod.warnings) == 0 {
		t.Fatal("no warning")
	}
	last := pod.warnings[len(pod.warnings)-1]
	if !strings.HasPrefix(last, begins) {
		t.Errorf("the warning is %q", last)
	}
	for _, words := range says {
		if !strings.Contains(last, words) {
			t.Errorf("the warning does not say %q: %s", words, last)
		}
	}
}

// A copy cannot follow: it is made beside its source, and peers that are not bound come to it.
func TestCloneStaysWithItsSource(t *testing.T) {
	s, pod, _ := newPod(t)
	origin := claim("origin", lvm.GiB, "vg-nvme")
	origin.Parameters["layout"] = "thin"
	source, err := pod.create(t, s, origin)
	must(t, err)
	id, err := lvm.ParseID(source.GetVolumeId())
	must(t, err)
	copied, plain := claim("copy", lvm.GiB, "vg-nvme"), claim("plain", lvm.GiB, "vg-nvme")
	copied.Parameters["layout"] = "thin"
	plain.Node = "node-2"
	request := requestOf(copied, "shop")
	request.VolumeContentSource = contentSource(id)
	plain.Bound = true
	pod.claims = []api.PodClaim{copied, plain}
	_, err = s.CreateVolume(t.Context(), request)
	expectKind(t, err, lvm.KindOutOfRange, "plain", "node-2")
	expectWarning(t, pod, "shop/copy copy-uid PodVolumesOnDifferentNodes: ", "plain", "node-2", "copy", "Move the volume of claim plain to node node-1")

	plain.Bound = false
	pod.claims = []api.PodClaim{copied, plain}
	if _, err = s.CreateVolume(t.Context(), request); err != nil {
		t.Error(err)
	}
}

// TestPeerFromAnotherNode: an empty volume does not begin on a node where a restored or cloned volume of its pod cannot follow. The scheduler has selected
// this node for both, because it knows no sources.
func TestPeerFromAnotherNode(t *testing.T) {
	thin := func(name string, change func(c *api.PodClaim)) api.PodClaim {
		c := claim(name, lvm.GiB, "vg-nvme")
		c.Parameters = map[string]string{"volumeGroup": "vg-nvme", "layout": "thin"}
		change(&c)
		return c
	}
	away := func(c *api.PodClaim) { c.FromSnapshot = "away" }
	anywhere := func(c *api.PodClaim) { c.Parameters[api.ParameterRestoreOnOtherNodes] = "true" }
	with := func(changes ...func(*api.PodClaim)) func(*api.PodClaim) {
		return func(c *api.PodClaim) {
			for _, change := range changes {
				change(c)
			}
		}
	}
	from := func(claim string) func(*api.PodClaim) { return func(c *api.PodClaim) { c.FromClaim = claim } }
	restored := func(snapshot string) func(*api.PodClaim) { return func(c *api.PodClaim) { c.FromSnapshot = snapshot } }
	on := func(node string) func(*api.PodClaim) { return func(c *api.PodClaim) { c.Node = node } }
	bound := func(c *api.PodClaim) { c.Bound = true }
	indirect := func(c *api.PodClaim) { c.Indirect = true }
	readOnly := func(c *api.PodClaim) { c.AccessModes = []string{"ReadOnlyMany"} }
	const made = lvm.Kind(-1)
	for name, test := range map[string]struct {
		peers []func(*api.PodClaim)
		want  lvm.Kind
		says  string
		reads int
	}{
		"a restore":                             {[]func(*api.PodClaim){away}, lvm.KindInsufficientCapacity, "the source of claim b is on node node-2", 1},
		"a restore that returned":               {[]func(*api.PodClaim){with(away, on(""))}, lvm.KindInsufficientCapacity, "node-2", 1},
		"a clone":                               {[]func(*api.PodClaim){from("away")}, lvm.KindInsufficientCapacity, "node-2", 1},
		"a read-only copy":                      {[]func(*api.PodClaim){with(away, readOnly, anywhere)}, lvm.KindInsufficientCapacity, "node-2", 1},
		"of a pod that shares a claim":          {[]func(*api.PodClaim){with(away, indirect)}, lvm.KindInsufficientCapacity, "node-2", 1},
		"that has its node, and would not stay": {[]func(*api.PodClaim){with(away, indirect, on("node-2"))}, lvm.KindInsufficientCapacity, "node-2", 0},
		"a class that copies to other nodes":    {[]func(*api.PodClaim){with(away, anywhere)}, made, "", 0},
		"a source on this node":                 {[]func(*api.PodClaim){restored("here")}, made, "", 1},
		"another driver's source":               {[]func(*api.PodClaim){restored("foreign")}, made, "", 1},
		"a source that is not ready":            {[]func(*api.PodClaim){restored("late")}, lvm.KindBusy, "late is not ready", 1},
		"that, and one on another node":         {[]func(*api.PodClaim){restored("late"), away}, lvm.KindInsufficientCapacity, "claim c", 2},
		"that, and one on this node":            {[]func(*api.PodClaim){restored("late"), restored("here")}, made, "", 2},
		"a clone of the claim itself":           {[]func(*api.PodClaim){from("a")}, made, "", 0},
		"a clone of a further claim of the pod": {[]func(*api.PodClaim){func(*api.PodClaim) {}, from("b")}, made, "", 0},
		"a volume on this node fixes the pod":   {[]func(*api.PodClaim){away, bound}, made, "", 0},
		"a claim that others bind":              {[]func(*api.PodClaim){func(c *api.PodClaim) { c.FromSnapshot, c.ByOthers = "away", true }}, made, "", 0},
		"very many":                             {slices.Repeat([]func(*api.PodClaim){restored("late")}, 20), lvm.KindBusy, "late is not ready", 8},
	} {
		t.Run(name, func(t *testing.T) {
			a := thin("a", func(*api.PodClaim) {})
			s, pod, _ := newPod(t, a)
			s.fullCopies = &copier{}
			pod.sources = map[string]string{"away": "node-2", "here": "node-1", "late": "?"}
			for i, change := range test.peers {
				pod.claims = append(pod.claims, thin(string(rune('b'+i)), change))
			}
			_, err := pod.create(t, s, a)
			if test.want == made {
				must(t, err)
			} else {
				expectKind(t, err, test.want, test.says, "pod web")
			}
			if n := volumesOf(t, s); (n == 1) != (test.want == made) || len(pod.sought) != test.reads {
				t.Errorf("%d volumes; asked for %q, want %d", n, pod.sought, test.reads)
			}
		})
	}
}

// TestPodsThatCloneEachOther: two pods, of each of which a claim is a clone of a claim of the other, wait for each other.
func TestPodsThatCloneEachOther(t *testing.T) {
	for from, want := range map[string]string{
		"a":     "; and pod api needs that claim and claim back, a clone of claim a, on one node, so neither begins: delete that pod, and first start one that uses claim far alone",
		"other": "",
	} {
		a, b, back := claim("a", lvm.GiB, "vg-nvme"), claim("b", lvm.GiB, "vg-nvme"), claim("back", lvm.GiB, "vg-nvme")
		b.FromClaim, back.FromClaim = "far", from
		s, pod, _ := newPod(t, a, b)
		pod.sources, pod.others = map[string]string{"far": "?"}, api.PodClaims{Pods: []string{"api"}, Claims: []api.PodClaim{back}}
		_, err := pod.create(t, s, a)
		if expectKind(t, err, lvm.KindBusy, "far is not ready"+want); want == "" && strings.Contains(err.Error(), "neither begins") {
			t.Error(err)
		}
	}
}

// TestVolumeOfPeerFromAnotherNode: a volume that was made is answered again, whatever was learned of its peers since.
func TestVolumeOfPeerFromAnotherNode(t *testing.T) {
	a, b := claim("a", lvm.GiB, "vg-nvme"), claim("b", lvm.GiB, "vg-nvme")
	s, pod, _ := newPod(t, a)
	made, err := pod.create(t, s, a)
	must(t, err)
	b.FromSnapshot, pod.sources = "away", map[string]string{"away": "node-2"}
	pod.claims = []api.PodClaim{a, b}
	if again, err := pod.create(t, s, a); err != nil || again.GetVolumeId() != made.GetVolumeId() || len(pod.sought) != 0 {
		t.Errorf("%v, %v; asked for %q", again, err, pod.sought)
	}
}

// The driver cannot resolve this: one claim is here, and the node has insufficient capacity for the rest.
func TestBoundPeerWithoutCapacityForTheRest(t *testing.T) {
	for _, bound := range []bool{true, false} { // whether Kubernetes knows of the first volume yet
		a, b := claim("a", 25*lvm.GiB, "vg-nvme"), claim("b", 10*lvm.GiB, "vg-nvme")
		s, pod, _ := newPod(t, a)
		mustCreate(t, s, requestOf(a, "shop"))
		pod.claims = nil
		mustCreate(t, s, requestOf(claim("stranger", 10*lvm.GiB, "vg-nvme"), "shop"))
		a.Bound = bound
		pod.claims = []api.PodClaim{a, b}
		_, err := pod.create(t, s, b)
		expectKind(t, err, lvm.KindInsufficientCapacity, "pod web")
		expectWarning(t, pod, "shop/b b-uid InsufficientCapacityForPod: ", "claim a", "node-1", ", or move its volume to a node", "delete claim a")

		c := claim("c", lvm.GiB, "vg-nvme")
		c.FromSnapshot, pod.sources, pod.warnings = "here", map[string]string{"here": "node-1"}, nil
		pod.claims = []api.PodClaim{a, b, c}
		_, err = pod.create(t, s, b)
		expectKind(t, err, lvm.KindInsufficientCapacity, "pod web")
		if expectWarning(t, pod, "shop/b b-uid InsufficientCapacityForPod: ", "delete claim a"); strings.Contains(pod.warnings[0], "move") {
			t.Errorf("a copy is only possible here: %s", pod.warnings[0])
		}
	}
}

// A volume that was made, and perhaps answered, is answered again, whatever has become of its pod's other claims: refused, it
// would be left behind here while its claim goes elsewhere.
func TestExistingVolumeIsReturnedDespitePeers(t *testing.T) {
	a, b := claim("a", 25*lvm.GiB, "vg-nvme"), claim("b", 10*lvm.GiB, "vg-nvme")
	s, pod, _ := newPod(t, a)
	made, err := pod.create(t, s, a)
	must(t, err)
	pod.claims = nil
	mustCreate(t, s, requestOf(claim("stranger", 10*lvm.GiB, "vg-nvme"), "shop"))
	pod.claims = []api.PodClaim{a, b}
	_, err = pod.create(t, s, b)
	expectKind(t, err, lvm.KindInsufficientCapacity)
	elsewhere := b
	elsewhere.Node = "node-2"
	for what, peer := range map[string]api.PodClaim{"refused here": b, "elsewhere by now": elsewhere} {
		pod.claims = []api.PodClaim{a, peer}
		again, err := pod.create(t, s, a)
		if err != nil || again.GetVolumeId() != made.GetVolumeId() {
			t.Errorf("its peer is %s: %v, %v", what, again, err)
		}
	}
}

// Without an answer of the API server nothing is made; without one to ask, or a claim to ask for, it is made alone.
func TestCreateWithoutAPIServer(t *testing.T) {
	a := claim("a", 25*lvm.GiB, "vg-nvme")
	s, pod, _ := newPod(t, a)
	pod.down = errors.New("connection refused")
	_, err := pod.create(t, s, a)
	expectKind(t, err, lvm.KindBusy, "shop/a", "connection refused")
	if n := volumesOf(t, s); n != 0 {
		t.Errorf("%d volumes were made", n)
	}
	nameless := requestOf(a, "shop")
	delete(nameless.Parameters, "csi.storage.k8s.io/pvc/name")
	mustCreate(t, s, nameless)
}
