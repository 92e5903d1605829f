package demo

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

func power() scenario.Scenario {
	return scenario.Scenario{Title: "A node can change only its own volumes, and needs little memory", Steps: []scenario.Step{
		{Says: "one node's token can change its own PersistentVolumes and claims, and none of another node", Prove: tokenIsHeld},
		{Says: "nodelvm's resident memory is at most 40 MiB on each node", Prove: memoryIsSmall},
	}}
}

// tokenIsHeld tries, as a dry run, what an attacker with the token of pg-0's node could do to the volumes of pg-0 and pg-1.
func tokenIsHeld(ctx context.Context, env *scenario.Environment) error {
	own, err := env.BoundTo(ctx, "data-pg-0")
	if err != nil {
		return err
	}
	other, err := env.BoundTo(ctx, "data-pg-1")
	if err != nil {
		return err
	}
	thief, err := env.ClientAsDriver(ctx, own.Node)
	if err != nil {
		return err
	}
	if err := noteLoss(ctx, thief, own.PV); err != nil {
		return fmt.Errorf("%s may not note the loss of its own volume: %w", own.Node, err)
	}
	if err := refused(noteLoss(ctx, thief, other.PV)); err != nil {
		return fmt.Errorf("%s notes the loss of a volume of %s: %w", own.Node, other.Node, err)
	}
	for _, pv := range []string{own.PV, other.PV} {
		if err := refused(deletePV(ctx, thief, pv)); err != nil {
			return fmt.Errorf("%s deletes PV %s, which is bound: %w", own.Node, pv, err)
		}
	}
	if err := refused(patchClaim(ctx, thief, "data-pg-1")); err != nil {
		return fmt.Errorf("%s changes a claim of %s: %w", own.Node, other.Node, err)
	}
	forged := other.Volume.DeepCopy()
	forged.ObjectMeta = metav1.ObjectMeta{Name: "forged"}
	_, err = thief.CoreV1().PersistentVolumes().Create(ctx, forged, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err := refused(err); err != nil {
		return fmt.Errorf("%s makes a PV on %s: %w", own.Node, other.Node, err)
	}
	return nil
}

// noteLoss writes what a node notes on a volume whose group it lacks.
func noteLoss(ctx context.Context, client kubernetes.Interface, name string) error {
	patch := []byte(`{"metadata":{"annotations":{"nodelvm.io/volume-group-lost-since":"2026-01-02T03:04:05Z"}}}`)
	_, err := client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func deletePV(ctx context.Context, client kubernetes.Interface, name string) error {
	return client.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
}

func patchClaim(ctx context.Context, client kubernetes.Interface, name string) error {
	claim, err := client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	claim.Annotations["stolen"] = "yes"
	_, err = client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Update(ctx, claim, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// refused is content only with the API server's refusal.
func refused(err error) error {
	if err == nil {
		return fmt.Errorf("it was allowed")
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

func memoryIsSmall(ctx context.Context, env *scenario.Environment) error {
	for _, node := range env.Lab.NodeNames() {
		pid, err := env.RunOnNode(ctx, node, "pgrep", "-ox", "nodelvm") // the oldest: what it starts bears its name for a moment
		if err != nil {
			return err
		}
		status, err := env.RunOnNode(ctx, node, "grep", "VmRSS", "/proc/"+string(bytes.TrimSpace(pid))+"/status")
		if err != nil {
			return err
		}
		fields := strings.Fields(string(status))
		if len(fields) != 3 {
			return fmt.Errorf("unreadable: %q", status)
		}
		kib, err := strconv.Atoi(fields[1])
		if err != nil {
			return err
		}
		env.Reporter.Note("%s: %.1f MiB", node, float64(kib)/1024)
		if kib > 40<<10 {
			return fmt.Errorf("%s: %d KiB", node, kib)
		}
	}
	return nil
}
