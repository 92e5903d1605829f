package kube

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// A lost volume group takes along the metadata that names its volumes. Their PersistentVolumes still name them.

// missingVolumes are the volumes of this node's bound claims that its disks did not show, as their PersistentVolumes name them.
type missingVolumes struct {
	mu sync.Mutex
	of map[string]missingVolume // by the claim's namespace/name
}

type missingVolume struct {
	own    ownClaim
	volume lvm.Volume // zero: the PersistentVolume is not one of this node
}

// missingReads bounds how many PersistentVolumes one check reads.
const missingReads = 50

// MissingVolumes returns volumes of this node's bound claims, among them all that a check did not find on its disks: ID, UUID, Name,
// Claim, and the volume group's name as of their creation. A volume may be on the disks again. It sends no request.
func (a *Agent) MissingVolumes() []lvm.Volume {
	a.missing.mu.Lock()
	defer a.missing.mu.Unlock()
	var list []lvm.Volume
	for _, key := range slices.Sorted(maps.Keys(a.missing.of)) {
		if m := a.missing.of[key]; m.volume.UUID != "" {
			list = append(list, m.volume)
		}
	}
	return list
}

// lookForMissing finds the bound claims whose volume should be on this node and whose volume its disks do not show. It reads
// each of their PersistentVolumes once.
func (a *Agent) lookForMissing(ctx context.Context) error {
	if a.audit.search.Holdings == nil {
		return nil
	}
	holdings, err := a.audit.search.Holdings(ctx)
	if err != nil {
		return err
	}
	a.missing.forget(a.claims.bound)
	unseen := a.claims.onDisks()
	for key, own := range unseen {
		if holds := slices.ContainsFunc(holdings.Owned, func(o lvm.ManagedVolume) bool {
			return !o.Snapshot && !o.Foreign && o.Name == own.volume
		}); holds || a.missing.knows(key, own) {
			delete(unseen, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(unseen))[:min(missingReads, len(unseen))] {
		own := unseen[key]
		pv, err := a.client.Volume(ctx, own.volume)
		if err != nil {
			return err
		}
		if pv != nil {
			a.missing.put(key, own, volumeOf(pv, own.claim(key), a.node))
		}
	}
	return nil
}

// rememberUnchosen keeps a volume of this node whose claim the scheduler did not place, such as an adopted one: lookForMissing does not
// read all such claims of the cluster.
func (a *Agent) rememberUnchosen(pv *corev1.PersistentVolume) {
	if pv.Spec.ClaimRef == nil {
		return
	}
	key := pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name
	if own, ok := a.claims.bound(key); ok && !own.chosen {
		a.missing.put(key, own, volumeOf(pv, own.claim(key), a.node))
	}
}

// volumeOf returns a claim's volume as its PersistentVolume names it; zero if that is not a volume of this node.
func volumeOf(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, node string) lvm.Volume {
	if kubeclient.Chain(pv, claim, node) != nil {
		return lvm.Volume{}
	}
	id, err := lvm.ParseID(pv.Spec.CSI.VolumeHandle)
	if err != nil {
		return lvm.Volume{}
	}
	attributes := pv.Spec.CSI.VolumeAttributes
	return lvm.Volume{ID: id, UUID: attributes[api.AttributeUUID], Name: pv.Name, Claim: kubeclient.KeyOf(claim), Group: lvm.VGName(attributes[api.AttributeVolumeGroup])}
}

func (m *missingVolumes) put(key string, own ownClaim, v lvm.Volume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[string]missingVolume{}
	}
	m.of[key] = missingVolume{own, v}
}

func (m *missingVolumes) knows(key string, own ownClaim) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.of[key]
	return ok && known.own.isSameBinding(own)
}

// forget drops the claims that are no longer bound to the same volume.
func (m *missingVolumes) forget(bound func(key string) (ownClaim, bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.of, func(key string, known missingVolume) bool {
		now, ok := bound(key)
		return !ok || !known.own.isSameBinding(now)
	})
}

// isSameBinding reports whether both are one claim with one volume.
func (own ownClaim) isSameBinding(other ownClaim) bool {
	return own.uid == other.uid && own.volume == other.volume
}
