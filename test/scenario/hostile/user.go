package hostile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// The parts of a round, in their order. The first one needs no driver: it shows how much slower the machine and Kubernetes have become.
const (
	bare = iota
	created
	expanded
	snapshotted
	restored
	deleted
	whole
)

var partNames = []string{"pod without a volume Ready", "claim created, pod Ready", "expanded", "snapshot ready", "restored, pod Ready", "all deleted", "whole round"}

// round has the time of each part.
type round [whole + 1]time.Duration

func (r round) String() string {
	text := fmt.Sprintf("%.1f s", r[whole].Seconds())
	for part, took := range r[:whole] {
		text += fmt.Sprintf(", %s %.1f", partNames[part], took.Seconds())
	}
	return text
}

const (
	sizeBefore = "64Mi"
	sizeAfter  = "96Mi"
	marked     = "the user's data"
)

var (
	snapshotKind = schema.GroupVersionResource{Group: api.SnapshotGroup, Version: "v1", Resource: "volumesnapshots"}
	contentKind  = schema.GroupVersionResource{Group: api.SnapshotGroup, Version: "v1", Resource: "volumesnapshotcontents"}
)

// user works in the scenarios' namespace.
type user struct {
	env     *scenario.Environment
	objects *dynamic.DynamicClient
	rounds  int
	kept    map[string]string // by pod that stays: the run of its container
}

func newUser(env *scenario.Environment) (*user, error) {
	objects, err := dynamicClient(env, "")
	return &user{env: env, objects: objects, kept: map[string]string{}}, err
}

// keep starts a pod with data on each node.
func (u *user) keep(ctx context.Context) error {
	for _, node := range u.env.Lab.NodeNames() {
		name := "kept-" + node
		if err := errors.Join(u.createClaim(ctx, name, sizeBefore, ""), u.createPod(ctx, name, node)); err != nil {
			return err
		}
		if err := u.mark(ctx, name); err != nil {
			return err
		}
		pod, err := u.env.WaitPodReady(ctx, name)
		if err != nil {
			return err
		}
		u.kept[name] = scenario.ContainerOf(pod)
	}
	return nil
}

// check fails unless the pods of keep have their data, and run as before.
func (u *user) check(ctx context.Context) error {
	for name, was := range u.kept {
		pod, err := u.env.WaitPodReady(ctx, name)
		if err != nil {
			return err
		}
		if is := scenario.ContainerOf(pod); is != was {
			return fmt.Errorf("the run of %s was %s and is %s", name, was, is)
		}
		if err := u.isMarked(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// round runs a volume's life on a node.
func (u *user) round(ctx context.Context, node string) (took round, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait.Limit(10*time.Minute))
	defer cancel()
	u.rounds++
	name := fmt.Sprintf("round-%d", u.rounds)
	restore := name + "-restored"
	for part, do := range []func() error{
		bare:        func() error { return u.startBare(ctx, name+"-bare", node) },
		created:     func() error { return u.start(ctx, name, node, sizeBefore, "") },
		expanded:    func() error { return u.env.Expand(ctx, name, name, sizeAfter) },
		snapshotted: func() error { return u.snapshot(ctx, name) },
		restored:    func() error { return u.start(ctx, restore, node, sizeAfter, name) },
		deleted:     func() error { return u.remove(ctx, name, restore) },
	} {
		began := time.Now()
		if err := do(); err != nil {
			return took, fmt.Errorf("%s on %s: %w", partNames[part], node, err)
		}
		if took[part] = time.Since(began); part != bare {
			took[whole] += took[part]
		}
		if part == expanded {
			err = u.mark(ctx, name)
		} else if part == restored {
			err = u.isMarked(ctx, restore)
		}
		if err != nil {
			return took, err
		}
	}
	return took, nil
}

// start creates a claim, from a snapshot unless that is "", and a pod, and waits for the pod.
func (u *user) start(ctx context.Context, name, node, size, snapshot string) error {
	if err := errors.Join(u.createClaim(ctx, name, size, snapshot), u.createPod(ctx, name, node)); err != nil {
		return err
	}
	return u.env.RunsOn(ctx, name, node)
}

// startBare creates a pod without a volume, waits for it, and deletes it without waiting.
func (u *user) startBare(ctx context.Context, name, node string) error {
	pods := u.env.Client.CoreV1().Pods(cluster.Namespace)
	pod := podOn(node, name)
	pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	return errors.Join(u.env.RunsOn(ctx, name, node), pods.Delete(ctx, name, metav1.DeleteOptions{}))
}

func (u *user) createClaim(ctx context.Context, name, size, snapshot string) error {
	class, group := scenario.ThinClass, api.SnapshotGroup
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
	}}
	if snapshot != "" {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: snapshot}
	}
	_, err := u.env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	return err
}

func (u *user) createPod(ctx context.Context, name, node string) error {
	_, err := u.env.Client.CoreV1().Pods(cluster.Namespace).Create(ctx, podOn(node, name), metav1.CreateOptions{})
	return err
}

// podOn returns a pod that mounts the claim of its name.
func podOn(node, name string) *corev1.Pod {
	grace := int64(1)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace, NodeSelector: map[string]string{corev1.LabelHostname: node},
		Containers: []corev1.Container{{Name: "main", Image: scenario.BusyboxImage, Command: []string{"sleep", "infinity"},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}},
	}}
}

func (u *user) mark(ctx context.Context, pod string) error {
	if _, err := u.env.WaitPodReady(ctx, pod); err != nil {
		return err
	}
	_, err := u.env.ExecInPod(ctx, pod, "sh", "-ec", `echo "`+marked+`" > /data/file; sync`)
	return err
}

func (u *user) isMarked(ctx context.Context, pod string) error {
	_, err := u.env.ExecInPod(ctx, pod, "grep", "-qx", marked, "/data/file")
	return err
}

func (u *user) snapshots() dynamic.ResourceInterface {
	return u.objects.Resource(snapshotKind).Namespace(cluster.Namespace)
}

// snapshot takes a snapshot of a claim, with its name, and waits until it is ready.
func (u *user) snapshot(ctx context.Context, claim string) error {
	if _, err := u.snapshots().Create(ctx, snapshotOf(claim, claim), metav1.CreateOptions{}); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		now, err := u.snapshots().Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ready, _, _ := unstructured.NestedBool(now.Object, "status", "readyToUse"); !ready {
			return fmt.Errorf("snapshot %s is not ready: %v%s", claim, now.Object["status"], u.env.LastEvents(ctx, claim))
		}
		return nil
	})
}

// remove deletes what a round has created, and waits until no PersistentVolume and no content is left of it.
func (u *user) remove(ctx context.Context, names ...string) error {
	pods, claims := u.env.Client.CoreV1().Pods(cluster.Namespace), u.env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace)
	volumes := map[string]bool{}
	for _, name := range names {
		claim, err := u.env.Claim(ctx, name)
		if err != nil {
			return err
		}
		volumes[claim.Spec.VolumeName] = true
		if err := errors.Join(pods.Delete(ctx, name, metav1.DeleteOptions{}), claims.Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			return err
		}
	}
	if err := u.snapshots().Delete(ctx, names[0], metav1.DeleteOptions{}); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		if _, err := u.snapshots().Get(ctx, names[0], metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("snapshot %s is still there (%w)", names[0], err)
		}
		for volume := range volumes {
			if _, err := u.env.Client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("PersistentVolume %s is still there (%w)", volume, err)
			}
		}
		return nil
	})
}

// isAlone fails while another namespace has a volume or a snapshot.
func (u *user) isAlone(ctx context.Context) error {
	volumes, err := u.env.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(volumes.Items, func(v corev1.PersistentVolume) bool {
		return v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == cluster.Namespace
	})
	if len(others) > 0 {
		return fmt.Errorf("%d PersistentVolumes are still there, such as %s of %s", len(others), others[0].Name, others[0].Spec.ClaimRef)
	}
	contents, err := u.objects.Resource(contentKind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(contents.Items) > 0 {
		return fmt.Errorf("%d VolumeSnapshotContents are still there, such as %v", len(contents.Items), contents.Items[0].Object)
	}
	return nil
}
