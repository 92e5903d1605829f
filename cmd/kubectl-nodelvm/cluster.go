package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/pending"
)

// cluster reads from one API server. It uses a REST client, because the generated clientset links the types of every API group.
type cluster struct {
	api         rest.Interface
	config      *rest.Config  // of api
	nodeTimeout time.Duration // for one node's page
}

func newCluster(config *rest.Config, nodeTimeout time.Duration) (*cluster, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, storagev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent = "kubectl-nodelvm/" + version
	config.QPS, config.Burst = 50, 100 // doctor asks about each right of the driver's account
	api, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &cluster{api: api, config: config, nodeTimeout: nodeTimeout}, nil
}

// get reads the object or list at a path of the API.
func (c *cluster) get(ctx context.Context, path string, into runtime.Object) error {
	return c.api.Get().AbsPath(path).Do(ctx).Into(into)
}

// list reads the objects of a list.
func list[T any](ctx context.Context, from *rest.Request) ([]T, error) {
	result := from.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	text, err := result.Raw()
	if err != nil {
		return nil, err
	}
	var read struct {
		Items []T `json:"items"`
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("cannot parse a list of the API server: %w", err)
	}
	return read.Items, nil
}

// all returns the request for all objects of a resource at a path of the API.
func (c *cluster) all(path string) *rest.Request { return c.api.Get().AbsPath(path) }

// in returns the request for the objects of a resource of the API group "" in a namespace, or in all.
func (c *cluster) in(namespace, resource string) *rest.Request {
	return c.api.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource)
}

// pods lists the pods of one namespace, or of all.
func (c *cluster) pods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	return list[corev1.Pod](ctx, c.in(namespace, "pods"))
}

// volumes lists the driver's PersistentVolumes.
func (c *cluster) volumes(ctx context.Context) ([]corev1.PersistentVolume, error) {
	all, err := list[corev1.PersistentVolume](ctx, c.all("/api/v1/persistentvolumes"))
	return slices.DeleteFunc(all, func(pv corev1.PersistentVolume) bool {
		return pv.Spec.CSI == nil || pv.Spec.CSI.Driver != api.DriverName
	}), err
}

// classes lists the driver's storage classes, and those of other drivers.
func (c *cluster) classes(ctx context.Context) (ours, others []storagev1.StorageClass, err error) {
	all, err := list[storagev1.StorageClass](ctx, c.all("/apis/storage.k8s.io/v1/storageclasses"))
	for _, class := range all {
		if class.Provisioner == api.DriverName {
			ours = append(ours, class)
		} else {
			others = append(others, class)
		}
	}
	return ours, others, err
}

// content has the fields of a VolumeSnapshotContent that the plugin reads.
type content struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Driver string `json:"driver"`
		Source struct {
			SnapshotHandle string `json:"snapshotHandle"` // of a pre-provisioned one
		} `json:"source"`
		VolumeSnapshotRef corev1.ObjectReference `json:"volumeSnapshotRef"`
	} `json:"spec"`
	Status struct {
		SnapshotHandle string `json:"snapshotHandle"`
		RestoreSize    int64  `json:"restoreSize"`  // bytes
		CreationTime   int64  `json:"creationTime"` // nanoseconds since 1970
	} `json:"status"`
}

// name returns the namespace/name of the VolumeSnapshot; "": the content names none.
func (c *content) name() string {
	if c.Spec.VolumeSnapshotRef.Name == "" {
		return ""
	}
	return c.Spec.VolumeSnapshotRef.Namespace + "/" + c.Spec.VolumeSnapshotRef.Name
}

// handle returns the snapshot's handle; "": it is not taken yet.
func (c *content) handle() string {
	return cmp.Or(c.Status.SnapshotHandle, c.Spec.Source.SnapshotHandle)
}

// contents lists the driver's VolumeSnapshotContents; installed is false in a cluster without the snapshot API.
func (c *cluster) contents(ctx context.Context) (ours []content, installed bool, err error) {
	ours, err = list[content](ctx, c.all("/apis/"+api.SnapshotGroup+"/v1/volumesnapshotcontents"))
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	return slices.DeleteFunc(ours, func(item content) bool { return item.Spec.Driver != api.DriverName }), err == nil, err
}

// claimOf returns the claim that a volume names, as "namespace/name"; "" if it names none. Only a volume in the phase Bound is bound to it.
func claimOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.ClaimRef == nil {
		return ""
	}
	return pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name
}

// keySecretOf returns the namespace/name of the Secret that the kubelet passes when it stages an encrypted volume; "" if the
// volume refers to none.
func keySecretOf(pv *corev1.PersistentVolume) string {
	ref := pv.Spec.CSI.NodeStageSecretRef
	if ref == nil {
		return ""
	}
	return ref.Namespace + "/" + ref.Name
}

// user is a pod that uses a claim.
type user struct {
	name      string
	node      string // that runs it, and so has the claim's volume; "": the pod does not run
	ephemeral bool   // the claim is of a generic ephemeral volume, and is deleted with the pod
}

// usersOf returns the pods that use each claim, by "namespace/name". It ignores pods that have ended.
func usersOf(pods []corev1.Pod) map[string][]user {
	users := map[string][]user{}
	for _, pod := range pods {
		if hasEnded(&pod) {
			continue
		}
		u := user{name: pod.Name}
		if pod.Status.Phase == corev1.PodRunning {
			u.node = pod.Spec.NodeName
		}
		for _, v := range pod.Spec.Volumes {
			if claim := pending.ClaimName(&pod, v); claim != "" {
				u.ephemeral = v.Ephemeral != nil
				users[pod.Namespace+"/"+claim] = append(users[pod.Namespace+"/"+claim], u)
			}
		}
	}
	return users
}

// nodeWithoutVolume returns the node of a claim's volume for a user who may not read PersistentVolumes; "": unknown. The selected node of a
// claim is that of its volume only while the claim is unbound; then a pod that runs shows the node.
func nodeWithoutVolume(claim *corev1.PersistentVolumeClaim, users []user) string {
	node := pending.NodeOfClaim(claim, nil)
	for _, u := range users {
		node = cmp.Or(node, u.node)
	}
	return node
}

const (
	driverPods      = "app.kubernetes.io/name=nodelvm,app.kubernetes.io/component=node" // the labels that the chart sets
	driverContainer = "nodelvm"
	socketDirectory = "/plugins/" + api.DriverName // below the kubelet's root directory
)

// drivers lists the driver's pods.
func (c *cluster) drivers(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := list[corev1.Pod](ctx, c.in("", "pods").Param("labelSelector", driverPods))
	for i := range pods {
		pods[i].Spec.NodeName = cmp.Or(pods[i].Spec.NodeName, meantNode(&pods[i]))
	}
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !isDriver(&pod.Spec) }), err
}

// meantNode returns the node that a DaemonSet's pod is for, which the scheduler has not placed yet: the DaemonSet controller names it in the
// pod's affinity. "": it names none.
func meantNode(pod *corev1.Pod) string {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range term.MatchFields {
			if e.Key == metav1.ObjectNameField && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
				return e.Values[0]
			}
		}
	}
	return ""
}

// isDriver reports whether a pod with the driver's labels may be the driver: it is privileged on the host, and has the directory of
// the driver's socket. Anyone who may create pods can set the labels. Whoever may create such a pod is root on its node.
func isDriver(spec *corev1.PodSpec) bool {
	privileged := slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool {
		return c.Name == driverContainer && c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false)
	})
	socket := slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil && strings.HasSuffix(path.Clean(v.HostPath.Path), socketDirectory)
	})
	return privileged && socket && ptr.Deref(spec.HostUsers, true)
}

// driverSet returns the driver's DaemonSet; nil: there is none. The API server refuses privileged pods to a tenant, but no DaemonSet
// of such pods. So the DaemonSet must be in the namespace of a driver pod; without any driver pod it must be the only one.
func driverSet(sets []appsv1.DaemonSet, pods []corev1.Pod) (*appsv1.DaemonSet, error) {
	var names []string
	var found *appsv1.DaemonSet
	for i, set := range sets {
		among := slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Namespace == set.Namespace })
		switch {
		case !isDriver(&set.Spec.Template.Spec):
		case among:
			return &sets[i], nil
		case len(pods) == 0:
			found, names = &sets[i], append(names, set.Namespace+"/"+set.Name)
		}
	}
	if len(names) > 1 {
		return nil, fmt.Errorf("none of them has a pod, so any of %s may be the driver's", strings.Join(names, ", "))
	}
	return found, nil
}
