package kube

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/attributes"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// claimStore keeps the claims of the watch on all claims that this node needs: the few that wait for something, and the names of
// those whose volume may be on this node. It is not a FilteredStore: a claim may be in both maps, a bound claim wakes its clones,
// and a new list must not change since when an unchanged claim waits.
type claimStore struct {
	node     string
	changed  func(key string)                                        // called without the lock
	observe  func(claim *corev1.PersistentVolumeClaim, deleted bool) // the same, with each claim; nil: no package wants them
	modifies bool                                                    // keep the claims that ask for other attributes

	mu   sync.Mutex
	open map[string]*openClaim // by namespace/name: those that keeps selects
	from map[source][]string   // keys of those in open that have a source
	own  map[string]ownClaim   // By namespace/name: bound, and its volume may be on this node (ownvolumes.go).
	keys map[string]string     // By name of a PersistentVolume: the claim in own that is bound to it.
	here map[string]bool       // Names of the PersistentVolumes on this node's disks; setHere says when one is dropped.

	calls map[string]calls // by namespace/name, of any claim: a call may arrive before the watch brings its claim
}

// openClaim is a claim that waits for a volume, for a larger one, or for other attributes of it.
type openClaim struct {
	*corev1.PersistentVolumeClaim
	since    time.Time // when the watch first brought this version
	selected time.Time // when the watch brought this node as its new selected node; zero: the claim came with it, or has another
}

// calls are the CreateVolume calls for a claim.
type calls struct {
	underWay int
	last     time.Time // end of the last one
}

// ownClaim is a bound claim.
type ownClaim struct {
	uid    types.UID
	volume string // name of the PersistentVolume
	class  string // name of its storage class
	trim   string // its trim interval
	chosen bool   // the scheduler selected this node for it
}

// claim rebuilds the claim of that key from the fields that the store keeps.
func (own ownClaim) claim(key string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{}
	c.Namespace, c.Name = kubeclient.ClaimKey(key)
	c.UID, c.Spec.VolumeName = own.uid, own.volume
	return c
}

func newClaimStore(node string, changed func(key string)) *claimStore {
	return &claimStore{node: node, changed: changed, open: map[string]*openClaim{}, from: map[source][]string{}, own: map[string]ownClaim{},
		keys: map[string]string{}, here: map[string]bool{}, calls: map[string]calls{}}
}

func (s *claimStore) Add(o any) error {
	s.mu.Lock()
	wake := s.put(o)
	s.mu.Unlock()
	s.wake(wake)
	s.observed(o, false)
	return nil
}

// observed passes on a claim.
func (s *claimStore) observed(o any, deleted bool) {
	if claim, ok := o.(*corev1.PersistentVolumeClaim); ok && s.observe != nil {
		s.observe(claim, deleted)
	}
}

func (s *claimStore) Update(o any) error { return s.Add(o) }

func (s *claimStore) Delete(o any) error {
	if claim, ok := kubeclient.Last(o).(*corev1.PersistentVolumeClaim); ok {
		s.mu.Lock()
		key := kubeclient.KeyOf(claim)
		s.close(key)
		s.disown(key)
		s.mu.Unlock()
		s.changed(key)
		s.observed(claim, true)
	}
	return nil
}

// Replace stores a complete list and drops the claims that are not in it; a job for one of them finds no claim.
func (s *claimStore) Replace(list []any, _ string) error {
	s.mu.Lock()
	before := s.open
	s.open = map[string]*openClaim{}
	clear(s.from)
	clear(s.own)
	clear(s.keys)
	var wake []string
	for _, o := range list { // all that wait are checked, clones among them
		if key, waits := s.store(o); waits {
			wake = append(wake, key)
		}
	}
	for key, claim := range s.open {
		if seen, ok := before[key]; ok && seen.UID == claim.UID && seen.ResourceVersion == claim.ResourceVersion {
			s.open[key] = seen
		}
	}
	s.mu.Unlock()
	s.wake(wake)
	for _, o := range list {
		s.observed(o, false)
	}
	return nil
}

func (s *claimStore) Resync() error { return nil }

// Transformer strips each object before the reflector collects a list.
func (s *claimStore) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if claim, ok := o.(*corev1.PersistentVolumeClaim); ok {
			return stripClaim(claim), nil
		}
		return o, nil
	}
}

// put stores a claim and returns the keys of the claims to check because of it: itself and its clones.
func (s *claimStore) put(o any) (wake []string) {
	key, waits := s.store(o)
	if _, own := s.own[key]; own {
		wake = slices.Clone(s.from[source{kubeclient.KindClaim, key}])
	}
	if waits {
		wake = append(wake, key)
	}
	return wake
}

// store stores a claim, and reports whether it waits for something.
func (s *claimStore) store(o any) (key string, waits bool) {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok {
		return "", false
	}
	claim, key = stripClaim(claim), kubeclient.KeyOf(claim)
	s.disown(key)
	if s.mayBeHere(claim) {
		s.own[key] = ownClaim{uid: claim.UID, volume: claim.Spec.VolumeName, class: kubeclient.ClassOf(claim), trim: claim.Annotations[api.AnnotationTrimInterval], chosen: claim.Annotations[api.AnnotationSelectedNode] == s.node}
		s.keys[claim.Spec.VolumeName] = key
	}
	before := s.open[key]
	s.close(key)
	if !s.keeps(claim) {
		return key, false
	}
	s.open[key] = &openClaim{PersistentVolumeClaim: claim, since: time.Now(), selected: s.selectedAt(before, claim)}
	if from := sourceOf(claim); from != (source{}) {
		s.from[from] = append(s.from[from], key)
	}
	return key, true
}

// close drops a claim that waited.
func (s *claimStore) close(key string) {
	claim, ok := s.open[key]
	if !ok {
		return
	}
	delete(s.open, key)
	from := sourceOf(claim.PersistentVolumeClaim)
	if left := slices.DeleteFunc(s.from[from], func(other string) bool { return other == key }); len(left) > 0 {
		s.from[from] = left
	} else {
		delete(s.from, from)
	}
}

// selectedAt returns when this node became the selected node of a claim, which was before; nil: it is new.
func (s *claimStore) selectedAt(before *openClaim, claim *corev1.PersistentVolumeClaim) time.Time {
	switch {
	case before == nil || before.UID != claim.UID || pending.NodeOfClaim(claim, nil) != s.node:
		return time.Time{}
	case pending.NodeOfClaim(before.PersistentVolumeClaim, nil) == s.node:
		return before.selected
	}
	return time.Now()
}

// selectedWithin reports whether this node became the selected node of a waiting claim at most that long ago.
func (s *claimStore) selectedWithin(key string, limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	claim, ok := s.open[key]
	return ok && !claim.selected.IsZero() && time.Since(claim.selected) <= limit
}

func (s *claimStore) wake(keys []string) {
	for _, key := range keys {
		s.changed(key)
	}
}

// waiting finds a claim that waits for something. The caller must not change it.
func (s *claimStore) waiting(key string) (*corev1.PersistentVolumeClaim, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	claim, ok := s.open[key]
	if !ok {
		return nil, false
	}
	return claim.PersistentVolumeClaim, true
}

// asked counts a CreateVolume call for a claim until answered is called.
func (s *claimStore) asked(key string) (answered func()) {
	note := func(underWay int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls[key] = calls{s.calls[key].underWay + underWay, time.Now()}
	}
	note(+1)
	return func() { note(-1) }
}

// forgetCalls drops calls that ended long ago.
func (s *claimStore) forgetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.calls, func(_ string, c calls) bool { return c.underWay == 0 && time.Since(c.last) > 2*retryMost })
}

// waitsSince returns since when a claim has waited unchanged; waits is false if a CreateVolume call is in flight or has
// ended since.
func (s *claimStore) waitsSince(key string) (since time.Time, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	claim, ok := s.open[key]
	if !ok || s.calls[key].underWay > 0 || s.calls[key].last.After(claim.since) {
		return time.Time{}, false
	}
	return claim.since, true
}

// wakeAll queues the waiting claims that which selects.
func (s *claimStore) wakeAll(which func(*corev1.PersistentVolumeClaim) bool) {
	var keys []string
	s.mu.Lock()
	for key, claim := range s.open {
		if which(claim.PersistentVolumeClaim) {
			keys = append(keys, key)
		}
	}
	s.mu.Unlock()
	s.wake(keys)
}

// wakeFrom queues the waiting claims that have a source.
func (s *claimStore) wakeFrom(from source) {
	s.mu.Lock()
	keys := slices.Clone(s.from[from])
	s.mu.Unlock()
	s.wake(keys)
}

// bound finds a bound claim whose volume may be on this node.
func (s *claimStore) bound(key string) (ownClaim, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, ok := s.own[key]
	return own, ok
}

// boundTo finds the claim of this node that is bound to a PersistentVolume.
func (s *claimStore) boundTo(volume string) (key string, own ownClaim, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, ok = s.keys[volume]
	return key, s.own[key], ok
}

// keeps reports whether a claim waits for something.
func (s *claimStore) keeps(claim *corev1.PersistentVolumeClaim) bool {
	return isOpen(claim) || s.modifies && attributes.Wanted(claim)
}

// isOpen reports whether a claim waits for a volume, or for a larger one.
func isOpen(claim *corev1.PersistentVolumeClaim) bool {
	switch {
	case claim.DeletionTimestamp != nil:
		return false
	case claim.Spec.VolumeName == "":
		return claim.Status.Phase != corev1.ClaimBound
	default:
		return claim.Status.Phase == corev1.ClaimBound && pending.BytesOf(claim.Spec.Resources.Requests.Storage()) > pending.BytesOf(claim.Status.Capacity.Storage())
	}
}

// stripClaim keeps what this package reads: for a claim that waits for nothing, only its names. Of a claim that is too large for
// csi-provisioner (kube/apiproxy), it keeps no text of a tenant, as if the claim had no class.
func stripClaim(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	kept := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion, CreationTimestamp: claim.CreationTimestamp,
		DeletionTimestamp: claim.DeletionTimestamp, Annotations: maps.Clone(claim.Annotations),
	}}
	if claim.Size() > api.MaxObject {
		kept.Annotations, kept.Spec.VolumeName, kept.Status.Phase = nil, claim.Spec.VolumeName, claim.Status.Phase
		return kept
	}
	maps.DeleteFunc(kept.Annotations, func(name, _ string) bool {
		return !slices.Contains([]string{api.AnnotationSelectedNode, api.AnnotationStorageProvisioner, api.AnnotationStorageProvisionerBeta, api.AnnotationStorageClassBeta, api.AnnotationNoNodeExpansion, api.AnnotationTrimInterval, api.AnnotationMoveTo, api.AnnotationMoveFinish}, name)
	})
	kept.Spec.VolumeName, kept.Spec.StorageClassName, kept.Status.Phase = claim.Spec.VolumeName, claim.Spec.StorageClassName, claim.Status.Phase
	if isOpen(claim) || attributes.Wanted(claim) {
		kept.Spec, kept.Status = claim.Spec, claim.Status
	}
	if pending.LostSource(claim) {
		kept.ManagedFields = claim.ManagedFields // which MayCreate reads
	}
	return kept
}
