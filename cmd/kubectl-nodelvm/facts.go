package main

import (
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
)

// facts are the only input of doctor's checks.
type facts struct {
	driver      *storagev1.CSIDriver // nil: there is none
	daemonSet   *appsv1.DaemonSet    // nil: there is none
	pods        []corev1.Pod         // the driver's
	csiNodes    []storagev1.CSINode
	classes     []storagev1.StorageClass // the driver's
	capacities  []storagev1.CSIStorageCapacity
	volumes     []corev1.PersistentVolume // the driver's
	snapshots   bool                      // the cluster has the snapshot API
	contents    []content                 // the driver's
	controllers []appsv1.Deployment       // that run a snapshot-controller
	nodes       []corev1.Node
	claims      []corev1.PersistentVolumeClaim // of all namespaces
	users       []corev1.Pod                   // of all namespaces
	taken       []namespaceSnapshot            // VolumeSnapshots of all namespaces
	budgets     []policyv1.PodDisruptionBudget // of all namespaces
	denied      []right                        // of the driver's account
	answers     []answer
	events      map[types.UID][]corev1.Event // about the objects of eventful
	now         time.Time
	keyPolicy   *keyPolicy      // nil: no class is encrypted, or no policy restricts its volumes
	keyFaults   []keyFault      // of Secrets
	unread      []string        // sentences: what could not be read, and why
	unreadable  map[string]bool // what could not be read: its absence is no finding
}

// Keys of facts.unreadable, for objects that a check would otherwise report as absent.
const (
	theDriver     = "the CSIDriver"
	theDaemonSets = "DaemonSets"
	theCSINodes   = "CSINodes"
	theCapacities = "CSIStorageCapacities"
	theEvents     = "events"
)

// gather reads the facts, and records what it may not read.
func (c *cluster) gather(ctx context.Context) (*facts, error) {
	f := &facts{unreadable: map[string]bool{}, now: time.Now()}
	pods, err := c.drivers(ctx)
	if err != nil {
		return nil, err // the user may read nothing, or the API server does not answer
	}
	f.pods = pods
	read := func(what string, err error) {
		if err != nil {
			f.unread, f.unreadable[what] = append(f.unread, what+": "+err.Error()), true
		}
	}
	f.classes, err = c.classes(ctx)
	read("storage classes", err)
	f.volumes, err = c.volumes(ctx)
	read("PersistentVolumes", err)
	f.contents, f.snapshots, err = c.contents(ctx)
	read("VolumeSnapshotContents", err)
	f.keyPolicy, err = c.readKeyPolicy(ctx, f.classes)
	read("the admission policy "+restrictionPolicy, err)
	read(theDriver, c.readDriver(ctx, f))
	read(theDaemonSets, c.readDaemonSet(ctx, f))
	read("Deployments", c.readControllers(ctx, f))
	var nodes storagev1.CSINodeList
	read(theCSINodes, c.get(ctx, "/apis/storage.k8s.io/v1/csinodes", &nodes))
	f.csiNodes = nodes.Items
	var capacities storagev1.CSIStorageCapacityList
	read(theCapacities, c.get(ctx, "/apis/storage.k8s.io/v1/csistoragecapacities", &capacities))
	f.capacities = capacities.Items
	read("nodes, claims, pods and VolumeSnapshots", c.readClaims(ctx, f))
	read("the Secrets of encrypted volumes", c.readKeySecrets(ctx, f))
	var budgets policyv1.PodDisruptionBudgetList
	read("PodDisruptionBudgets", c.get(ctx, "/apis/policy/v1/poddisruptionbudgets", &budgets))
	f.budgets = budgets.Items
	f.denied, err = c.deniedRights(ctx, f)
	read("the rights of the driver's account", err)
	f.answers = c.answers(ctx, f.pods, f.classes)
	f.events, err = c.eventsOf(ctx, f.eventful())
	read(theEvents, err)
	return f, nil
}

// readClaims reads the objects that explain why claims wait. It sets none of them if it cannot read one.
func (c *cluster) readClaims(ctx context.Context, f *facts) error {
	w, err := c.claimFacts(ctx, "")
	if err == nil {
		f.nodes, f.claims, f.users, f.taken = w.nodes, w.claims, w.pods, w.snapshots
	}
	return err
}

func (c *cluster) readDriver(ctx context.Context, f *facts) error {
	var driver storagev1.CSIDriver
	err := c.get(ctx, "/apis/storage.k8s.io/v1/csidrivers/"+api.DriverName, &driver)
	if err == nil {
		f.driver = &driver
	}
	return ignoreNotFound(err)
}

// readDaemonSet needs f.pods.
func (c *cluster) readDaemonSet(ctx context.Context, f *facts) error {
	var list appsv1.DaemonSetList
	if err := c.api.Get().AbsPath("/apis/apps/v1/daemonsets").Param("labelSelector", driverPods).Do(ctx).Into(&list); err != nil {
		return err
	}
	var err error
	f.daemonSet, err = driverSet(list.Items, f.pods)
	return err
}

// readControllers finds the snapshot-controllers by their image, because each installation may use another name.
func (c *cluster) readControllers(ctx context.Context, f *facts) error {
	var list appsv1.DeploymentList
	if err := c.get(ctx, "/apis/apps/v1/deployments", &list); err != nil {
		return err
	}
	for _, d := range list.Items {
		if snapshotController(&d) != nil {
			f.controllers = append(f.controllers, d)
		}
	}
	return nil
}

// snapshotController returns the snapshot-controller's container in a Deployment, or nil if there is none.
func snapshotController(d *appsv1.Deployment) *corev1.Container {
	i := slices.IndexFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return strings.Contains(c.Image, "/snapshot-controller") })
	if i < 0 {
		return nil
	}
	return &d.Spec.Template.Spec.Containers[i]
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// container returns a container of the DaemonSet by name, or nil if there is none.
func (f *facts) container(name string) *corev1.Container {
	if f.daemonSet == nil {
		return nil
	}
	containers := f.daemonSet.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &containers[i]
}

// account returns the driver's namespace and service account; ok is false without a DaemonSet.
func (f *facts) account() (namespace, name string, ok bool) {
	if f.daemonSet == nil {
		return "", "", false
	}
	name = f.daemonSet.Spec.Template.Spec.ServiceAccountName
	if name == "" {
		name = "default"
	}
	return f.daemonSet.Namespace, name, true
}

// answering returns the answers of the nodes that answered.
func (f *facts) answering() []answer {
	var list []answer
	for _, a := range f.answers {
		if a.err == nil {
			list = append(list, a)
		}
	}
	return list
}
