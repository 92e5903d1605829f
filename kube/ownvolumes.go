package kube

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// A claim's volume is on the node in the affinity of its PersistentVolume (pending.NodeOfClaim). No watch can select the
// PersistentVolumes of one node, and reading that of each claim of the cluster would cost every node a request. So the agent keeps a
// bound claim if this node is selected for it, if none is, or if its PersistentVolume has the name of a volume on this node's disks,
// as csi-provisioner names both. The hourly audit finds PersistentVolumes with other names. Before the agent changes or reports
// anything because of such a claim, it reads the PersistentVolume.

// learnVolumes notes which volumes are on this node's disks.
func (a *Agent) learnVolumes(ctx context.Context) {
	if a.audit.search.Holdings == nil {
		return
	}
	holdings, err := a.audit.search.Holdings(ctx)
	if err != nil {
		a.log.WarnContext(ctx, "cannot list the volumes on the disks; until the next audit, the driver may overlook claims with another selected node", "error", err)
		return
	}
	a.claims.setHere(namesOf(holdings))
}

// namesOf returns the names of the PersistentVolumes that csi-provisioner creates for the volumes.
func namesOf(holdings lvm.ManagedVolumes) map[string]bool {
	names := map[string]bool{}
	for _, o := range holdings.Owned {
		if !o.Snapshot {
			names[o.Name] = true
		}
	}
	return names
}

// mayHold reports, without a request, whether the volume of a bound claim may be on this node.
func (a *Agent) mayHold(ctx context.Context, claim *corev1.PersistentVolumeClaim) bool {
	if a.claims.has(claim) {
		return true
	}
	if a.audit.search.Holdings == nil {
		return false
	}
	holdings, err := a.audit.search.Holdings(ctx) // the volume may have come since the last audit
	if err != nil || !namesOf(holdings)[claim.Spec.VolumeName] {
		return err != nil
	}
	a.claims.adopt(claim)
	return true
}

// adoptClaims adds to the store the claims of the node's PersistentVolumes that it lacks: another node is selected for them, and the
// volume has come since the watch brought the claim, or the PersistentVolume has another name than the volume.
func (a *Agent) adoptClaims(ctx context.Context, pvs []*corev1.PersistentVolume) error {
	holdings, err := a.audit.search.Holdings(ctx)
	if err != nil {
		return err
	}
	names := namesOf(holdings)
	for _, pv := range pvs {
		names[pv.Name] = pending.IsOn(pv, a.node)
	}
	a.claims.setHere(names)
	for _, pv := range pvs {
		ref := pv.Spec.ClaimRef
		if _, _, known := a.claims.boundTo(pv.Name); known || ref == nil || pv.Status.Phase != corev1.VolumeBound {
			continue
		}
		claim, err := a.client.Claim(ctx, ref.Namespace, ref.Name)
		if err != nil {
			return err
		}
		if claim != nil && kubeclient.Chain(pv, claim, a.node) == nil {
			a.claims.adopt(claim)
		}
	}
	return nil
}

// setHere replaces the names of the volumes that are on this node's disks. It keeps a former one while a claim has the volume.
func (s *claimStore) setHere(names map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.here, func(name string, _ bool) bool { return s.keys[name] == "" })
	for name, here := range names {
		if here {
			s.here[name] = true
		} else {
			delete(s.here, name)
		}
	}
}

// adopt stores a bound claim whose volume is on this node. Once the store has it, only the watch changes it.
func (s *claimStore) adopt(claim *corev1.PersistentVolumeClaim) {
	s.mu.Lock()
	s.here[claim.Spec.VolumeName] = true
	var wake []string
	if _, known := s.own[kubeclient.KeyOf(claim)]; !known {
		wake = s.put(claim)
	}
	s.mu.Unlock()
	s.wake(wake)
}

// has reports whether the volume of a bound claim may be on this node, as far as the store knows.
func (s *claimStore) has(claim *corev1.PersistentVolumeClaim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mayBeHere(claim)
}

// mayBeHere is has with the lock held. A tenant may write any volume's name into a claim: only the phase that Kubernetes sets says that
// it is bound. A volume that was created here stays known when it gets another claim, as from a volume populator.
func (s *claimStore) mayBeHere(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Spec.VolumeName == "" || claim.Status.Phase != corev1.ClaimBound {
		return false
	}
	selected := claim.Annotations[api.AnnotationSelectedNode]
	if selected == s.node {
		s.here[claim.Spec.VolumeName] = true
	}
	return selected == "" || s.here[claim.Spec.VolumeName]
}

// disown removes a claim from own. The caller holds the lock.
func (s *claimStore) disown(key string) {
	own, ok := s.own[key]
	if !ok {
		return
	}
	delete(s.own, key)
	if s.keys[own.volume] == key {
		delete(s.keys, own.volume)
	}
}

// onDisks lists the bound claims whose volumes are, or should be, on this node's disks, by namespace/name.
func (s *claimStore) onDisks() map[string]ownClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	claims := maps.Clone(s.own)
	maps.DeleteFunc(claims, func(_ string, own ownClaim) bool { return !s.here[own.volume] })
	return claims
}
