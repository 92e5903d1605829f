package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/test/cluster"
)

const (
	growingPod   = "db-0"
	growingClaim = "data-db-0"
	growingPath  = "/var/lib/postgresql/data"
)

func growing() Scenario {
	return Scenario{Title: "A database's volume is expanded under load", Steps: []Step{
		{Says: "a PostgreSQL server gets a thin volume of 512 MiB", Prove: smallDatabase},
		{Says: "under pgbench's load it is expanded to 1 GiB: no restart, no failed transaction", Prove: growsUnderLoad},
		{Says: "claim, PersistentVolume and lvs agree on 1 GiB", Prove: func(ctx context.Context, env *Environment) error {
			return env.sizesAgree(ctx, growingClaim, "1Gi")
		}},
	}}
}

func smallDatabase(ctx context.Context, env *Environment) error {
	for _, manifest := range []string{"life-classes.yaml", "life-database.yaml"} {
		if err := apply(manifest)(ctx, env); err != nil {
			return err
		}
	}
	if _, err := env.WaitPodReady(ctx, growingPod); err != nil {
		return err
	}
	if _, err := env.QueryIn(ctx, growingPod, "create table if not exists acked (n bigint primary key)"); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, growingPod, "pgbench", "-i", "-q", "-s", "2", "postgres"); err != nil {
		return err
	}
	return env.sizesAgree(ctx, growingClaim, "512Mi")
}

func growsUnderLoad(ctx context.Context, env *Environment) error {
	before, err := env.WaitPodReady(ctx, growingPod)
	if err != nil {
		return err
	}
	small, err := env.fileSystemSize(ctx, growingPod, growingPath)
	if err != nil {
		return err
	}
	load, err := env.StartPgbench(ctx, growingPod)
	if err != nil {
		return err
	}
	grown := env.grow(ctx, growingClaim, growingPod, "1Gi")
	transactions, err := load.Stop(ctx)
	if err := errors.Join(grown, err); err != nil {
		return err
	}
	large, err := env.fileSystemSize(ctx, growingPod, growingPath)
	if err != nil {
		return err
	}
	after, err := env.WaitPodReady(ctx, growingPod)
	if err != nil {
		return err
	}
	env.Reporter.Note("df says %d MiB, and said %d MiB; pgbench's transactions meanwhile: %d", large>>20, small>>20, transactions)
	if large < 900<<20 || small > 512<<20 {
		return fmt.Errorf("the file system had %d bytes and has %d", small, large)
	}
	if was, is := containerOf(before), containerOf(after); was != is {
		return fmt.Errorf("the container was %s and is %s", was, is)
	}
	return nil
}

// containerOf names what a restart would change.
func containerOf(pod *corev1.Pod) string {
	status := pod.Status.ContainerStatuses[0]
	return fmt.Sprintf("%s of pod %s, restarted %d times", status.ContainerID, pod.UID, status.RestartCount)
}

// grow asks for a new size of a claim that a pod uses, and waits until the claim says that it has it, file system and all.
func (env *Environment) grow(ctx context.Context, claim, pod, size string) error {
	if err := env.RequestSize(ctx, claim, size); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return env.claimGrown(ctx, claim, size, corev1.PersistentVolumeClaimNodeResizePending) }); err != nil {
		return err
	}
	// The kubelet processes a running pod's volumes once in a minute or two, and at once when the pod is changed.
	touch := fmt.Sprintf(`{"metadata":{"annotations":{"demo/claim-grown-to":%q}}}`, size)
	if _, err := env.Client.CoreV1().Pods(cluster.Namespace).Patch(ctx, pod, types.MergePatchType, []byte(touch), metav1.PatchOptions{}); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { return env.claimGrown(ctx, claim, size, "") })
}

// claimGrown fails until a claim has that size or, if one is named, its expansion that state.
func (env *Environment) claimGrown(ctx context.Context, name, size string, state corev1.ClaimResourceStatus) error {
	claim, err := env.Claim(ctx, name)
	if err != nil {
		return err
	}
	has, is := claim.Status.Capacity[corev1.ResourceStorage], claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	if state != "" && is == state || has.Cmp(resource.MustParse(size)) == 0 && is == "" {
		return nil
	}
	return fmt.Errorf("claim %s has %s of %s (%q, %v)%s", name, has.String(), size, is, claim.Status.Conditions, env.LastEvents(ctx, name))
}

// sizesAgree holds what Kubernetes says of a volume's size to what lvs says.
func (env *Environment) sizesAgree(ctx context.Context, name, size string) error {
	claim, err := env.Claim(ctx, name)
	if err != nil {
		return err
	}
	pv, err := env.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	v, err := env.VolumeOf(ctx, name)
	if err != nil {
		return err
	}
	want := resource.MustParse(size)
	status := claim.Status.Capacity[corev1.ResourceStorage]
	if status.Cmp(want) != 0 || pv.Spec.Capacity.Storage().Cmp(want) != 0 || v.Size != strconv.FormatInt(want.Value(), 10) {
		return fmt.Errorf("want %s; claim %s has %s, its PersistentVolume %s, lvs on %s says %s bytes",
			size, name, status.String(), pv.Spec.Capacity.Storage(), v.Node, v.Size)
	}
	return nil
}

// fileSystemSize asks df in a pod for the bytes of the file system at path.
func (env *Environment) fileSystemSize(ctx context.Context, pod, path string) (int64, error) {
	out, err := env.ExecInPod(ctx, pod, "df", "-k", "-P", path)
	if err != nil {
		return 0, err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	fields := strings.Fields(lines[len(lines)-1])
	if len(fields) < 2 {
		return 0, fmt.Errorf("df in %s answered %q", pod, out)
	}
	kib, err := strconv.ParseInt(fields[1], 10, 64)
	return kib << 10, err
}

func infeasible() Scenario {
	return Scenario{Title: "An expansion that is too large can be canceled", Steps: []Step{
		{Says: "a claim requests 100 GiB: the expansion is infeasible, and an event says why", Prove: tooLarge},
		{Says: "the claim requests 1100 MiB instead, and the volume gets that size", Prove: lowered},
	}}
}

const wishful = "clone-early" // its pod has the same name

func tooLarge(ctx context.Context, env *Environment) error {
	if err := env.RequestSize(ctx, wishful, "100Gi"); err != nil {
		return err
	}
	said, err := env.WaitClaimEvent(ctx, wishful, "VolumeResizeFailed", "from 1 GiB to 100 GiB")
	if err != nil {
		return err
	}
	env.Reporter.Note("nodelvm says: %s", said)
	err = cluster.Eventually(ctx, func() error {
		return env.claimGrown(ctx, wishful, "100Gi", corev1.PersistentVolumeClaimControllerResizeInfeasible)
	})
	if err != nil {
		return err
	}
	return env.sizesAgree(ctx, wishful, "1Gi")
}

func lowered(ctx context.Context, env *Environment) error {
	if err := env.grow(ctx, wishful, wishful, "1100Mi"); err != nil {
		return err
	}
	if size, err := env.fileSystemSize(ctx, wishful, "/data"); err != nil || size < 1000<<20 {
		return errors.Join(err, fmt.Errorf("the file system has %d MiB", size>>20))
	}
	return env.sizesAgree(ctx, wishful, "1100Mi")
}
