package neighbours

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
	"github.com/nodelvm/nodelvm/test/scenario/attack"
)

// refused is a claim for which nodelvm creates no volume.
type refused struct {
	name, mode, line string // what its spec has in addition
	reason, event    string // what an event says
	why              string // what kubectl nodelvm why says
}

var refusedClaims = []refused{
	{"cloned", "Block", "dataSourceRef: {kind: PersistentVolumeClaim, name: raw}", "SourceOfOtherDriver", "has a volume of the driver " + otherDriver,
		"the claim's source, PersistentVolumeClaim raw, has a volume of the driver " + otherDriver},
	{"restored", "Block", "dataSourceRef: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: disk}", "ProvisioningFailed",
		"is not handled by CSI driver of StorageClass thin", "is not handled by CSI driver of StorageClass thin"},
	{"elsewhere", "Filesystem", "dataSourceRef: {kind: PersistentVolumeClaim, name: plain, namespace: default}", "ProvisioningFailed",
		"the claim was created with a data source that the API server dropped", "create it in the namespace of its source"},
	{"selecting", "Filesystem", "selector: {matchLabels: {disk: old}}", "ProvisioningFailed", "claim Selector is not supported", "the claim has a selector (disk=old)"},
	{"waiting", "Filesystem", "dataSourceRef: {apiGroup: " + otherDriver + ", kind: Backup, name: weekly}", "Provisioning", "external populator", "a volume populator has to create the volume, from Backup." + otherDriver + " weekly"},
}

// claims is about claims whose data is not nodelvm's to copy.
func claims() scenario.Scenario {
	sc := scenario.Scenario{Title: "Claims have sources that nodelvm does not serve"}
	for _, r := range refusedClaims {
		sc.Steps = append(sc.Steps, scenario.Step{Says: "a claim with " + r.line + " gets no volume: an event and kubectl nodelvm why say so", Prove: r.prove})
	}
	sc.Steps = append(sc.Steps,
		scenario.Step{Says: "none of them has a volume, and other claims do", Prove: othersGoOn},
		scenario.Step{Says: "a volume populator fills a claim: its pod reads the data from a volume of nodelvm", Prove: populated},
		scenario.Step{Says: "the snapshot-controller runs without --enable-distributed-snapshotting: the node labels the content, and the snapshot is restored", Prove: undistributed},
	)
	return sc
}

func (r refused) prove(ctx context.Context, env *scenario.Environment) error {
	if err := env.ApplyWith(ctx, "neighbours-claim.yaml", "NAME", r.name, "MODE", r.mode, "LINE", r.line); err != nil {
		return err
	}
	if err := env.WaitClaimEvent(ctx, r.name, r.reason, r.event); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		said, err := env.Shell(ctx, "kubectl nodelvm why "+r.name+" -n "+cluster.Namespace)
		if !strings.Contains(said, r.why) {
			return fmt.Errorf("why does not say %q: %s (%v)", r.why, said, err)
		}
		return nil
	})
}

func othersGoOn(ctx context.Context, env *scenario.Environment) error {
	if err := attack.NextTenant(ctx, env); err != nil {
		return err
	}
	for _, r := range refusedClaims {
		claim, err := env.Claim(ctx, r.name)
		if err != nil {
			return err
		}
		if claim.Spec.VolumeName != "" {
			return fmt.Errorf("claim %s has the volume %s", r.name, claim.Spec.VolumeName)
		}
		if err := env.Delete(ctx, "pvc/"+r.name); err != nil {
			return err
		}
	}
	return nil
}

// populated does what a volume populator (kubernetes-csi/lib-volume-populator) does: it fills the volume of another claim, and gives it to the user's.
func populated(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("neighbours-backup.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.WaitClaimEvent(ctx, "filled", "Provisioning", "external populator"); err != nil {
		return err
	}
	claim, err := env.Claim(ctx, "filled")
	if err != nil {
		return err
	}
	const prime = "prime"
	if err := scenario.PodWithClaim(prime, scenario.ThinClass, "64Mi", claim.Annotations[scenario.AnnSelectedNode])(ctx, env); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, prime); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, prime, "sh", "-ec", "echo nightly > /data/word; sync"); err != nil {
		return err
	}
	bound, err := env.BoundTo(ctx, prime)
	if err != nil {
		return err
	}
	if err := env.Delete(ctx, "pod/"+prime); err != nil {
		return err
	}
	to := fmt.Sprintf(`{"spec": {"claimRef": {"namespace": %q, "name": "filled", "uid": %q, "resourceVersion": null}}}`, cluster.Namespace, claim.UID)
	if _, err := env.Client.CoreV1().PersistentVolumes().Patch(ctx, bound.PV, types.MergePatchType, []byte(to), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, "filled", bound.Node); err != nil {
		return err
	}
	if word, err := env.ExecInPod(ctx, "filled", "cat", "/data/word"); err != nil || word != "nightly" {
		return fmt.Errorf("the pod reads %q: %w", word, err)
	}
	if err := env.Delete(ctx, "pvc/"+prime, "pod/filled", "pvc/filled"); err != nil {
		return err
	}
	_, err = env.Kubectl(ctx, "", "delete", "crd", "backups."+otherDriver)
	return err
}

// undistributed takes a snapshot as with the snapshot-controllers of many distributions, and restores it.
func undistributed(ctx context.Context, env *scenario.Environment) (err error) {
	if err := env.Lab.RestartSnapshotController(false); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Lab.RestartSnapshotController(true)) }()
	if err := env.CreateSnapshot(ctx, "central", "plain"); err != nil {
		return err
	}
	if err := env.WaitSnapshotReady(ctx, "central"); err != nil {
		return err
	}
	const label = `jsonpath={.items[?(@.spec.volumeSnapshotRef.name=="central")].metadata.labels.snapshot\.storage\.kubernetes\.io/managed-by}`
	if is, err := env.Kubectl(ctx, "", "get", "volumesnapshotcontent", "-o", label); err != nil || is != node {
		return fmt.Errorf("the content is labelled with %q: %w", is, err)
	}
	restore := "dataSourceRef: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: central}"
	if err := env.ApplyWith(ctx, "neighbours-claim.yaml", "NAME", "central", "MODE", "Filesystem", "LINE", restore); err != nil {
		return err
	}
	if _, err := env.WaitClaimBound(ctx, "central"); err != nil {
		return err
	}
	return env.Delete(ctx, "pvc/central", "volumesnapshot/central")
}
