package nodeloss

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	instances   = 2 // on three nodes, one on each: a lost one has another node to go to
	ownerName   = "db"
	serialLabel = "instance"
	roleLabel   = "role"
	primary     = "primary"
)

// purposes are the claims of an instance.
var purposes = []string{"data", "wal", "archive"}

var ownLabels = labels.Set{"app": "db"}

// operator acts as the operator of a replicated database. Like CloudNativePG, it has no StatefulSet, and counts its instances by their claims.
// If all claims of an instance are there, it creates the pod. If too few instances have a claim, it creates another, with another number.
// An instance with some of its claims waits for ever. The primary's pod has one more label, for its budget.
//
// It acts at each change of an object, on what its watches show: it does not see a deletion of a moment ago.
type operator struct {
	client kubernetes.Interface
	owner  metav1.OwnerReference
	pods   corelisters.PodNamespaceLister
	claims corelisters.PersistentVolumeClaimNamespaceLister
	nodes  corelisters.NodeLister
	serial int
	made   map[int]time.Time // when it created an instance: its watch may not show that yet
}

// watchIsLate is how long a watch may take to show what the operator created.
const watchIsLate = 2 * time.Second

// startOperator runs an operator until stop, which returns its error.
func startOperator(ctx context.Context, env *scenario.Environment) (stop func() error, err error) {
	client, err := env.FastClient()
	if err != nil {
		return nil, err
	}
	owner, err := client.CoreV1().ConfigMaps(cluster.Namespace).Get(ctx, ownerName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	o := &operator{
		client: client, made: map[int]time.Time{},
		owner: metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: ptr.To(true)},
	}
	if err := o.forbidEviction(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the step
	ended := make(chan error, 1)
	go func() { ended <- o.run(ctx) }()
	return func() error { cancel(); return <-ended }, nil
}

// forbidEviction creates the primary's budget. It belongs to the operator, so the doctor leaves it out.
func (o *operator) forbidEviction(ctx context.Context) error {
	_, err := o.client.PolicyV1().PodDisruptionBudgets(cluster.Namespace).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "db-primary", OwnerReferences: []metav1.OwnerReference{o.owner}},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: labels.Merge(ownLabels, labels.Set{roleLabel: primary})},
		},
	}, metav1.CreateOptions{})
	return err
}

// run acts until ctx ends.
func (o *operator) run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(o.client, 0)
	core := factory.Core().V1()
	o.pods, o.claims, o.nodes = core.Pods().Lister().Pods(cluster.Namespace), core.PersistentVolumeClaims().Lister().PersistentVolumeClaims(cluster.Namespace), core.Nodes().Lister()
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() }}
	for _, informer := range []cache.SharedIndexInformer{core.Pods().Informer(), core.PersistentVolumeClaims().Informer(), core.Nodes().Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	defer factory.Shutdown()
	for {
		if err := o.act(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(time.Second):
		}
	}
}

// act does what the objects call for.
func (o *operator) act(ctx context.Context) error {
	pods, err := o.pods.List(ownLabels.AsSelector())
	if err != nil {
		return err
	}
	claims, err := o.claims.List(ownLabels.AsSelector())
	if err != nil {
		return err
	}
	count := map[string]int{} // claims by instance, except those that are being deleted
	for _, claim := range claims {
		if claim.DeletionTimestamp == nil {
			count[claim.Labels[serialLabel]]++
		}
	}
	for serial, at := range o.made {
		if name := strconv.Itoa(serial); count[name] == 0 && time.Since(at) < watchIsLate {
			count[name] = 0 // it counts as an instance
		}
	}
	for serial, n := range count {
		there := slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Labels[serialLabel] == serial })
		if n == len(purposes) && !there {
			if err := o.createPod(ctx, serial); err != nil {
				return err
			}
		}
	}
	if len(count) < instances {
		return o.createInstance(ctx)
	}
	return o.electPrimary(ctx, pods)
}

func (o *operator) createInstance(ctx context.Context) error {
	o.serial++
	o.made[o.serial] = time.Now()
	serial := strconv.Itoa(o.serial)
	for _, purpose := range purposes {
		_, err := o.client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: purpose + "-" + serial, Labels: labels.Merge(ownLabels, labels.Set{serialLabel: serial})},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To("operated"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return o.createPod(ctx, serial)
}

// ownVolumes ends with an error if a volume was another instance's.
const ownVolumes = `for d in data wal archive; do
	[ -s /$d/id ] || echo $1 >/$d/id
	[ "$(cat /$d/id)" = "$1" ] || { echo "volume $d is of instance $(cat /$d/id)"; exit 1; }
done
sync
exec sleep infinity`

func (o *operator) createPod(ctx context.Context, serial string) error {
	container := corev1.Container{Name: "main", Image: scenario.BusyboxImage, Command: []string{"sh", "-ec", ownVolumes, "db", serial}}
	var volumes []corev1.Volume
	for _, purpose := range purposes {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: purpose, MountPath: "/" + purpose})
		volumes = append(volumes, corev1.Volume{Name: purpose, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: purpose + "-" + serial},
		}})
	}
	_, err := o.client.CoreV1().Pods(cluster.Namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "db-" + serial, Labels: labels.Merge(ownLabels, labels.Set{serialLabel: serial}), OwnerReferences: []metav1.OwnerReference{o.owner},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container}, Volumes: volumes, TerminationGracePeriodSeconds: ptr.To(int64(1)), AutomountServiceAccountToken: ptr.To(false),
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: ownLabels},
			}}}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// electPrimary gives the label to a pod that is Ready on a node that accepts pods, unless the one with the label is.
func (o *operator) electPrimary(ctx context.Context, pods []*corev1.Pod) error {
	var able []*corev1.Pod
	for _, pod := range pods {
		if o.able(pod) {
			able = append(able, pod)
		}
	}
	isPrimary := func(pod *corev1.Pod) bool { return pod.Labels[roleLabel] == primary }
	if len(able) == 0 || slices.ContainsFunc(able, isPrimary) {
		return nil
	}
	roles := map[string]string{able[0].Name: `"` + primary + `"`}
	for _, pod := range pods {
		if isPrimary(pod) {
			roles[pod.Name] = "null"
		}
	}
	var failed error
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, roleLabel, roles[name])
		_, err := o.client.CoreV1().Pods(cluster.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

func (o *operator) able(pod *corev1.Pod) bool {
	node, err := o.nodes.Get(pod.Spec.NodeName)
	return err == nil && !node.Spec.Unschedulable && isReady(pod)
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
