package kube

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// csi-provisioner has DeleteVolume called for one PersistentVolume, but another one may own the logical volume: an admin
// created it under another name, or a restore tool or the thief of a node's token added the first. A request of DeleteVolume
// has only the handle, so the agent searches all PersistentVolumes for it. The same holds for snapshots and their contents.

// ownersTimeout is the time limit of one search. csi-provisioner waits for 120 s.
const ownersTimeout = 30 * time.Second

// owner is a PersistentVolume with the handle of a volume.
type owner struct {
	name     string
	released bool // its claim was deleted, and its reclaim policy is Delete: csi-provisioner deletes the volume of no other
}

// MayDelete returns nil if the driver may delete a volume: no PersistentVolume has its handle, or a single one, which is
// released with the reclaim policy Delete. It costs one list of all PersistentVolumes, which simultaneous calls share. For a
// snapshot see mayDeleteSnapshot, for a group snapshot kubeclient.Client.MayDeleteGroup. lvm.KindConflict: an object needs the volume or snapshot; lvm.KindBusy: the API server does not
// answer, retry.
func (a *Agent) MayDelete(ctx context.Context, of lvm.ID) error {
	ctx, cancel := context.WithTimeout(ctx, ownersTimeout)
	defer cancel()
	switch {
	case of.IsSnapshot():
		return a.mayDeleteSnapshot(ctx, of)
	case of.IsGroupSnapshot():
		return a.client.MayDeleteGroup(ctx, of)
	}
	owners, err := a.owners.of(ctx, of.String())
	if err != nil {
		return lvm.Errorf(lvm.KindBusy, "cannot determine whether another PersistentVolume has volume %s; it is not deleted before that is known: %w", of, err)
	}
	return deletable(of, owners)
}

// deletable decides, from all PersistentVolumes with the volume's handle, whether the driver may delete the volume.
func deletable(of lvm.ID, owners []owner) error {
	switch {
	case len(owners) > 1:
		return lvm.Errorf(lvm.KindConflict, "%w", kubeclient.SharedHandleError(owners[0].name, owners[1].name, of.String()))
	case len(owners) == 1 && !owners[0].released:
		return lvm.Errorf(lvm.KindConflict, "volume %s is not deleted: PersistentVolume %s has it, and is not released with the reclaim policy Delete", of, owners[0].name)
	}
	return nil
}

// mayDeleteSnapshot returns nil if each VolumeSnapshotContent that has a snapshot, or whose VolumeSnapshot it was taken for, is being
// deleted with the deletion policy Delete. It costs one list of all contents.
func (a *Agent) mayDeleteSnapshot(ctx context.Context, of lvm.ID) error {
	var needed string
	err := a.client.EachContent(ctx, func(c *kubeclient.Content) {
		if kubeclient.HasSnapshot(c, of) && kubeclient.IsNeeded(c.DeletionTimestamp, c.Spec.DeletionPolicy) {
			needed = c.Name
		}
	})
	switch {
	case err != nil:
		return lvm.Errorf(lvm.KindBusy, "cannot determine whether another VolumeSnapshotContent has snapshot %s; it is not deleted before that is known: %w", of, err)
	case needed != "":
		return lvm.Errorf(lvm.KindConflict, "snapshot %s is not deleted: VolumeSnapshotContent %s has it, and is not being deleted with the deletion policy Delete", of, needed)
	}
	return nil
}

// ownerLists finds the PersistentVolumes with a handle. Each answer is from a list that begins after the question. Questions
// that arrive while a list runs share the next one.
type ownerLists struct {
	client *kubeclient.Client
	turn   chan struct{} // has a token while a goroutine lists

	mu   sync.Mutex
	next *ownerList // has not begun; nil: no question waits
}

// ownerList is one list of all PersistentVolumes.
type ownerList struct {
	owners map[string][]owner // by handle; it has a key for each question
	ended  bool
	err    error
}

func newOwnerLists(client *kubeclient.Client) *ownerLists {
	return &ownerLists{client: client, turn: make(chan struct{}, 1)}
}

// of returns the PersistentVolumes with the handle, in the order of their names.
func (l *ownerLists) of(ctx context.Context, handle string) ([]owner, error) {
	list := l.join(handle)
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !list.ended {
		l.begin(list)
		list.err = list.read(ctx, l.client)
		list.ended = list.err == nil || ctx.Err() == nil // else only this caller has gone, and the next one lists
	}
	return list.owners[handle], list.err
}

// join adds a question to the next list.
func (l *ownerLists) join(handle string) *ownerList {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		l.next = &ownerList{owners: map[string][]owner{}}
	}
	l.next.owners[handle] = nil
	return l.next
}

// begin closes a list for further questions.
func (l *ownerLists) begin(list *ownerList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == list {
		l.next = nil
	}
}

func (list *ownerList) read(ctx context.Context, client *kubeclient.Client) error {
	found := map[string]map[string]owner{} // by handle and name: two pages may contain a PersistentVolume
	err := client.EachVolume(ctx, func(pv *corev1.PersistentVolume) {
		if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != api.DriverName {
			return
		}
		handle := pv.Spec.CSI.VolumeHandle
		if _, asked := list.owners[handle]; !asked {
			return
		}
		if found[handle] == nil {
			found[handle] = map[string]owner{}
		}
		found[handle][pv.Name] = owner{pv.Name, kubeclient.IsReleased(pv) && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete}
	})
	for handle, owners := range found {
		list.owners[handle] = slices.SortedFunc(maps.Values(owners), func(a, b owner) int { return strings.Compare(a.name, b.name) })
	}
	return err
}
