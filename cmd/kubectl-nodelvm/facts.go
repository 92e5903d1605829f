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

// facts are the only input of doctor's checks, and of what why explains. The first part is read for both: for doctor of all namespaces, for
// why of one.
type facts struct {
	drivers      []corev1.Pod // the driver's
	answers      []answer
	classes      []storagev1.StorageClass  // the driver's
	otherClasses []storagev1.StorageClass  // of other drivers
	keyPolicy    *keyPolicy                // nil: no policy restricts volumes
	volumes      []corev1.PersistentVolume // the driver's
	contents     []content                 // the driver's
	nodes        []corev1.Node
	csiNodes     []storagev1.CSINode // nil: unknown
	claims       []corev1.PersistentVolumeClaim
	pods         []corev1.Pod        // also those of other drivers' volumes
	snapshots    []namespaceSnapshot // also those of other drivers' volumes
	events       map[types.UID][]corev1.Event
	unexplained  []string // sentences: what could not be read of why claims and pods wait
	now          time.Time

	driver      *storagev1.CSIDriver // nil: there is none
	daemonSet   *appsv1.DaemonSet    // nil: there is none
	capacities  []storagev1.CSIStorageCapacity
	snapshotAPI bool                // the cluster has it
	controllers []appsv1.Deployment // that run a snapshot-controller
	budgets     []policyv1.PodDisruptionBudget
	quotas      []corev1.ResourceQuota
	wrongRights []right         // of the driver's account
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
	theQuotas     = "ResourceQuotas"
	theContents   = "VolumeSnapshotContents"
	theVolumes    = "PersistentVolumes"
	theClasses    = "storage classes"
)

// gather reads the facts for doctor, and records what it may not read.
func (c *cluster) gather(ctx context.Context) (*facts, error) {
	f := &facts{unreadable: map[string]bool{}, now: time.Now()}
	var err error
	if f.drivers, err = c.drivers(ctx); err != nil {
		return nil, err // the user may read nothing, or the API server does not answer
	}
	read := func(what string, err error) {
		if err != nil {
			f.unread, f.unreadable[what] = append(f.unread, what+": "+err.Error()), true
		}
	}
	f.classes, f.otherClasses, err = c.classes(ctx)
	read(theClasses, err)
	f.volumes, err = c.volumes(ctx)
	read(theVolumes, err)
	f.contents, f.snapshotAPI, err = c.contents(ctx)
	read(theContents, err)
	f.keyPolicy, err = c.readKeyPolicy(ctx, f.classes)
	read(theKeyPolicy, err)
	read(theDriver, c.readDriver(ctx, f))
	read(theDaemonSets, c.readDaemonSet(ctx, f))
	read("Deployments", c.readControllers(ctx, f))
	read(theCSINodes, c.readCSINodes(ctx, f))
	f.capacities, err = list[storagev1.CSIStorageCapacity](ctx, c.all("/apis/storage.k8s.io/v1/csistoragecapacities"))
	read(theCapacities, err)
	read("nodes, claims, pods and VolumeSnapshots", c.readClaims(ctx, f, ""))
	read("the Secrets of encrypted volumes", c.readKeySecrets(ctx, f))
	f.budgets, err = list[policyv1.PodDisruptionBudget](ctx, c.all("/apis/policy/v1/poddisruptionbudgets"))
	read("PodDisruptionBudgets", err)
	f.quotas, err = list[corev1.ResourceQuota](ctx, c.in("", "resourcequotas"))
	read(theQuotas, err)
	f.wrongRights, err = c.wrongRights(ctx, f)
	read("the rights of the driver's account", err)
	f.answers = c.answers(ctx, f.drivers, f.classes)
	if f.events, err = c.eventsOf(ctx, f.eventful()); err != nil {
		read("events", err)
		f.unexplained = f.unread
	}
	return f, nil
}

// gatherOf reads the facts that explain the claims and pods of a namespace, except the events about them. It needs them all, except the
// policy and the CSINodes.
func (c *cluster) gatherOf(ctx context.Context, namespace string) (*facts, error) {
	f := &facts{now: time.Now()}
	err := c.readClaims(ctx, f, namespace)
	if err == nil {
		f.contents, _, err = c.contents(ctx)
	}
	if err == nil {
		f.volumes, err = c.volumes(ctx)
	}
	if err == nil {
		f.classes, f.otherClasses, err = c.classes(ctx)
	}
	if err == nil {
		f.drivers, err = c.drivers(ctx)
	}
	if err != nil {
		return nil, err
	}
	if f.keyPolicy, err = c.readKeyPolicy(ctx, f.classes); err != nil {
		f.unexplained = append(f.unexplained, theKeyPolicy+": "+err.Error())
	}
	if err := c.readCSINodes(ctx, f); err != nil {
		f.unexplained = append(f.unexplained, theCSINodes+": "+err.Error())
	}
	f.answers = c.answers(ctx, f.drivers, f.classes)
	return f, nil
}

func (c *cluster) readCSINodes(ctx context.Context, f *facts) (err error) {
	f.csiNodes, err = list[storagev1.CSINode](ctx, c.all("/apis/storage.k8s.io/v1/csinodes"))
	return err
}

// readClaims reads the nodes, and the claims, pods and snapshots of a namespace, or of all: together they explain why claims wait. It sets
// none of them if it cannot read one.
func (c *cluster) readClaims(ctx context.Context, f *facts, namespace string) error {
	claims, err := list[corev1.PersistentVolumeClaim](ctx, c.in(namespace, "persistentvolumeclaims"))
	if err != nil {
		return err
	}
	nodes, err := list[corev1.Node](ctx, c.in("", "nodes"))
	if err != nil {
		return err
	}
	pods, err := c.pods(ctx, namespace)
	if err != nil {
		return err
	}
	snapshots, err := c.namespaceSnapshots(ctx, namespace)
	if err != nil {
		return err
	}
	f.nodes, f.claims, f.pods, f.snapshots = nodes, claims, pods, snapshots
	return nil
}

func (c *cluster) readDriver(ctx context.Context, f *facts) error {
	var driver storagev1.CSIDriver
	err := c.get(ctx, "/apis/storage.k8s.io/v1/csidrivers/"+api.DriverName, &driver)
	if err == nil {
		f.driver = &driver
	}
	return ignoreNotFound(err)
}

// readDaemonSet needs f.drivers.
func (c *cluster) readDaemonSet(ctx context.Context, f *facts) error {
	sets, err := list[appsv1.DaemonSet](ctx, c.all("/apis/apps/v1/daemonsets").Param("labelSelector", driverPods))
	if err != nil {
		return err
	}
	f.daemonSet, err = driverSet(sets, f.drivers)
	return err
}

// readControllers finds the snapshot-controllers by their image, because each installation may use another name.
func (c *cluster) readControllers(ctx context.Context, f *facts) error {
	all, err := list[appsv1.Deployment](ctx, c.all("/apis/apps/v1/deployments"))
	f.controllers = slices.DeleteFunc(all, func(d appsv1.Deployment) bool { return snapshotController(&d) == nil })
	return err
}

// snapshotController returns the snapshot-controller's container in a Deployment, or nil if there is none.
func snapshotController(d *appsv1.Deployment) *corev1.Container {
	return find(d.Spec.Template.Spec.Containers, func(c *corev1.Container) bool { return strings.Contains(c.Image, "/snapshot-controller") })
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
	return find(f.daemonSet.Spec.Template.Spec.Containers, func(c *corev1.Container) bool { return c.Name == name })
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
