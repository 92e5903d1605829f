package backup

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/docrun"
	"github.com/nodelvm/nodelvm/test/scenario"
)

func (s *state) nodeLoss() scenario.Scenario {
	return scenario.Scenario{Title: "A node is lost with its volumes", Steps: []scenario.Step{
		{Says: "its database has a snapshot", Prove: takeOwnSnapshot},
		{Says: "the power of " + restoreNode + " is cut: with the page's commands the namespace is deleted, and restored on another node", Limit: 30 * time.Minute, Prove: s.restoreAfterLoss},
		{Says: "every row that was acknowledged before the backup is there, and the raw volume is the same", Prove: s.checkData},
		{Says: restoreNode + " returns, and its driver deletes the volumes of the claims that are gone, but not the snapshot", Prove: nodeReturns},
		{Says: "the snapshot is deleted with its content", Prove: deleteOwnSnapshot},
	}}
}

// ownSnapshot is a VolumeSnapshot that is not Velero's.
const ownSnapshot = "own"

func takeOwnSnapshot(ctx context.Context, env *scenario.Environment) error {
	if err := env.CreateSnapshot(ctx, ownSnapshot, claims[0]); err != nil {
		return err
	}
	return env.WaitSnapshotReady(ctx, ownSnapshot)
}

func (s *state) restoreAfterLoss(ctx context.Context, env *scenario.Environment) error {
	if err := env.Lab.PowerCut(restoreNode); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "wait", "--for=condition=Ready=Unknown", "--timeout=10m", "node/"+restoreNode); err != nil {
		return err
	}
	const name = backupName + "-after-loss"
	page := docrun.BackupOfLostNode(
		`"shop"`, `"`+cluster.Namespace+`"`, "namespace shop", "namespace "+cluster.Namespace, "namespace/shop", "namespace/"+cluster.Namespace, "-n shop", "-n "+cluster.Namespace,
		"shop-elsewhere", name, "shop-1", backupName,
	)
	began := time.Now()
	if err := scenario.Follow(page)(ctx, env); err != nil {
		return err
	}
	if err := s.restored(ctx, env, name, began, ""); err != nil {
		return err
	}
	released, err := releasedVolumes(ctx, env)
	if err == nil && len(released) != len(claims) {
		err = fmt.Errorf("%d PersistentVolumes are Released, want those of %v: %v", len(released), claims, released)
	}
	return err
}

// releasedVolumes returns the PersistentVolumes whose claims are gone.
func releasedVolumes(ctx context.Context, env *scenario.Environment) (names []string, err error) {
	list, err := env.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, pv := range list.Items {
		if pv.Status.Phase == corev1.VolumeReleased {
			names = append(names, pv.Name)
		}
	}
	return names, nil
}

func nodeReturns(ctx context.Context, env *scenario.Environment) error {
	if err := env.Lab.Boot(ctx, restoreNode); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		rows, err := env.LogicalVolumes(ctx, restoreNode)
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, cluster.LogicalVolume.IsPool)
		if len(rows) != 1 || !isSnapshot(rows[0].Tags) {
			return fmt.Errorf("%s has %v, want the snapshot alone", restoreNode, rows)
		}
		released, err := releasedVolumes(ctx, env)
		if err == nil && len(released) > 0 {
			err = fmt.Errorf("these are still there: %v", released)
		}
		return err
	})
}

func deleteOwnSnapshot(ctx context.Context, env *scenario.Environment) error {
	content, err := env.Kubectl(ctx, "", "get", "volumesnapshotcontent", "-o", `jsonpath={.items[?(@.spec.volumeSnapshotRef.name=="`+ownSnapshot+`")].metadata.name}`)
	if err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "patch", "volumesnapshotcontent", content, "--type", "merge", "-p", `{"spec":{"deletionPolicy":"Delete"}}`); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "volumesnapshotcontent", content); err != nil {
		return err
	}
	return nothingOfBackupIsLeft(ctx, env)
}
