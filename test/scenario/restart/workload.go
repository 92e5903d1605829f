package restart

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// workload asks for volumes on one node, lets them grow, snapshots them and deletes them, in random order, and waits for
// nothing of it.
type workload struct {
	random *rand.Rand
	made   int
}

// Few enough for the node's processor, and small enough for its disks.
const (
	workloadPause  = 300 * time.Millisecond
	workloadClaims = 12
	workloadCopies = 6
	snapshotAPI    = "/apis/snapshot.storage.k8s.io/v1/namespaces/" + cluster.Namespace + "/volumesnapshots"
	nothing        = "nothing is under way"
)

// start goes on until it is stopped; stop tells what it could not even ask for.
func (w *workload) start(ctx context.Context, env *scenario.Environment) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for {
			if err := w.operate(ctx, env); err != nil && ctx.Err() == nil {
				ended <- err
				return
			}
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-time.After(workloadPause):
			}
		}
	}()
	return func() error { cancel(); return <-ended }
}

// operate starts one operation.
func (w *workload) operate(ctx context.Context, env *scenario.Environment) error {
	claims, err := listWorkloadClaims(ctx, env)
	if err != nil {
		return err
	}
	claims = slices.DeleteFunc(claims, func(claim corev1.PersistentVolumeClaim) bool { return claim.DeletionTimestamp != nil })
	snapshots, err := listWorkloadSnapshots(ctx, env)
	if err != nil {
		return err
	}
	w.made++
	name := fmt.Sprintf("workload-%d", w.made)
	what := w.random.IntN(10)
	if len(claims) == 0 || what < 4 && len(claims) < workloadClaims {
		return w.claim(ctx, env, name)
	}
	chosen := claims[w.random.IntN(len(claims))]
	switch {
	case what < 6:
		return workloadGrow(ctx, env, chosen)
	case what < 8 && len(snapshots) < workloadCopies:
		source := scenario.DatabaseClaim // the database's own
		if *chosen.Spec.StorageClassName == scenario.ThinClass && chosen.Status.Phase == corev1.ClaimBound {
			source = chosen.Name
		}
		return workloadSnapshot(ctx, env, name, source)
	case what == 8 && len(snapshots) > 0:
		return kubeclient.UnlessNotFound(snapshotClient(env).Delete().AbsPath(snapshotAPI, snapshots[w.random.IntN(len(snapshots))].Metadata.Name).Do(ctx).Error())
	}
	if isCopied(chosen.Name, snapshots) {
		return nil
	}
	return kubeclient.UnlessNotFound(env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Delete(ctx, chosen.Name, metav1.DeleteOptions{}))
}

// isCopied reports whether a snapshot of the claim is not ready. If the claim is deleted before the snapshot controller protects it with
// its finalizer, the snapshot never becomes ready.
func isCopied(claim string, snapshots []volumeSnapshot) bool {
	return slices.ContainsFunc(snapshots, func(s volumeSnapshot) bool {
		return s.Spec.Source.PersistentVolumeClaimName == claim && !s.Status.ReadyToUse
	})
}

func (w *workload) claim(ctx context.Context, env *scenario.Environment, name string) error {
	class := []string{scenario.GrowingClass, scenario.ThinClass}[w.random.IntN(2)]
	_, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nodelvm-test": "workload"}, Annotations: map[string]string{scenario.AnnSelectedNode: scenario.FirstNode}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
		},
	}, metav1.CreateOptions{})
	return err
}

// workloadGrow lets a bound claim grow by 4 MiB; one that waits for its volume cannot.
func workloadGrow(ctx context.Context, env *scenario.Environment, claim corev1.PersistentVolumeClaim) error {
	if claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	size.Add(resource.MustParse("4Mi"))
	return kubeclient.UnlessNotFound(env.RequestSize(ctx, claim.Name, size.String()))
}

func workloadSnapshot(ctx context.Context, env *scenario.Environment, name, claim string) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
		"metadata": map[string]any{"name": name, "namespace": cluster.Namespace, "labels": map[string]string{"nodelvm-test": "workload"}},
		"spec":     map[string]any{"volumeSnapshotClassName": scenario.ThinClass, "source": map[string]string{"persistentVolumeClaimName": claim}},
	})
	if err != nil {
		return err
	}
	return snapshotClient(env).Post().AbsPath(snapshotAPI).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}

func snapshotClient(env *scenario.Environment) rest.Interface {
	return env.Client.Discovery().RESTClient()
}

func listWorkloadClaims(ctx context.Context, env *scenario.Environment) ([]corev1.PersistentVolumeClaim, error) {
	list, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: scenario.WorkloadLabel})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// volumeSnapshot is what is read of one.
type volumeSnapshot struct {
	Metadata struct {
		Name              string
		DeletionTimestamp *time.Time
	}
	Spec struct {
		Source struct{ PersistentVolumeClaimName string }
	}
	Status struct{ ReadyToUse bool }
}

func listWorkloadSnapshots(ctx context.Context, env *scenario.Environment) ([]volumeSnapshot, error) {
	text, err := snapshotClient(env).Get().AbsPath(snapshotAPI).Param("labelSelector", scenario.WorkloadLabel).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []volumeSnapshot }
	err = json.Unmarshal(text, &list)
	return list.Items, err
}

// underWay tells what is begun and not yet ended.
func (w *workload) underWay(ctx context.Context, env *scenario.Environment) (string, error) {
	claims, err := listWorkloadClaims(ctx, env)
	if err != nil {
		return "", err
	}
	snapshots, err := listWorkloadSnapshots(ctx, env)
	if err != nil {
		return "", err
	}
	pvs, err := env.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	creating, growing, deleting, copying := 0, 0, 0, 0
	for _, claim := range claims {
		if claim.DeletionTimestamp != nil {
			deleting++
			continue
		}
		wants := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		state := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
		switch {
		case claim.Status.Phase != corev1.ClaimBound:
			creating++
		// One that waits for a pod to mount it has had its growth, and gets the next one after that (KEP-1790).
		case wants.Cmp(claim.Status.Capacity[corev1.ResourceStorage]) > 0 && state != corev1.PersistentVolumeClaimNodeResizePending:
			growing++
		}
	}
	for _, pv := range pvs.Items {
		if pv.Status.Phase == corev1.VolumeReleased {
			deleting++
		}
	}
	for _, snapshot := range snapshots {
		if !snapshot.Status.ReadyToUse || snapshot.Metadata.DeletionTimestamp != nil {
			copying++
		}
	}
	var under []string
	for _, some := range []struct {
		n    int
		what string
	}{{creating, "being made"}, {growing, "growing"}, {deleting, "being deleted"}, {copying, "snapshots on their way"}} {
		if some.n > 0 {
			under = append(under, fmt.Sprintf("%d %s", some.n, some.what))
		}
	}
	if len(under) == 0 {
		return nothing, nil
	}
	return strings.Join(under, ", "), nil
}
