package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/report"
)

const reinstall = "install the release once more (helm upgrade, or kubectl apply -f nodelvm.yaml)"

// checkDriverObject checks the CSIDriver, which describes the driver to Kubernetes.
func checkDriverObject(f *facts, found func(where, what, fix string)) {
	const where = "CSIDriver " + api.DriverName
	if f.unreadable[theDriver] {
		return
	}
	if f.driver == nil {
		found(where, "no CSIDriver object: Kubernetes assumes that volumes must be attached, and ignores the driver's capacity", reinstall)
		return
	}
	if f.driver.Spec.AttachRequired == nil || *f.driver.Spec.AttachRequired {
		found(where, "attachRequired is true: pods wait forever for an attachment", "delete the object (volumes in use are not touched) and "+reinstall)
	}
	if f.driver.Spec.StorageCapacity == nil || !*f.driver.Spec.StorageCapacity {
		found(where, "storageCapacity is not true: the scheduler puts pods on nodes without capacity", "set it: kubectl patch csidriver "+api.DriverName+` --type merge -p '{"spec":{"storageCapacity":true}}'`)
	}
}

// checkDaemonSet checks whether the DaemonSet exists and selects nodes, and whether its pods are ready and have no memory limit.
func checkDaemonSet(f *facts, found func(where, what, fix string)) {
	switch set := f.daemonSet; {
	case f.unreadable[theDaemonSets]:
	case set == nil:
		found("DaemonSet nodelvm", "no DaemonSet of privileged pods has the labels "+driverPods, "install nodelvm (helm install, or kubectl apply -f nodelvm.yaml)")
	case set.Status.DesiredNumberScheduled == 0:
		found("DaemonSet "+set.Namespace+"/"+set.Name, "the DaemonSet selects no node", "check its nodeSelector and affinity, and the labels of the nodes")
	}
	checkMemoryLimits(f.drivers, found)
	for _, pod := range f.drivers {
		if _, down := f.isDown(pod.Spec.NodeName); down {
			continue
		}
		if why := waiting(&pod); why != "" {
			found(pod.Spec.NodeName, "the driver's pod "+pod.Name+" is not ready: "+why,
				fmt.Sprintf("kubectl -n %s describe pod %s; kubectl -n %s logs %s --all-containers", pod.Namespace, pod.Name, pod.Namespace, pod.Name))
		}
	}
}

// checkMemoryLimits reports the first memory limit of a container that runs LVM. The chart refuses one, but a LimitRange sets it at admission.
func checkMemoryLimits(pods []corev1.Pod, found func(where, what, fix string)) {
	for _, pod := range pods {
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			limit, limited := c.Resources.Limits[corev1.ResourceMemory]
			if limited && (c.Name == driverContainer || c.Name == "prepare") {
				found(pod.Spec.NodeName, fmt.Sprintf("the container %s of the driver's pod %s has a memory limit (%s): at the limit the kernel kills LVM's commands too, in the middle of a commit", c.Name, pod.Name, &limit),
					fmt.Sprintf("kubectl -n %[1]s get limitranges shows what sets it, if you did not: remove that, then kubectl -n %[1]s rollout restart daemonset nodelvm", pod.Namespace))
				return
			}
		}
	}
}

// waiting returns why a pod is not ready, or "" if it is.
func waiting(pod *corev1.Pod) string {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) { // an init container blocks all later ones
		if why := containerFault(&c); why != "" {
			return why
		}
	}
	for _, c := range pod.Status.Conditions {
		if (c.Type == corev1.PodReady || c.Type == corev1.PodScheduled) && c.Status != corev1.ConditionTrue {
			return strings.TrimSpace(c.Reason + " " + c.Message)
		}
	}
	return ""
}

// containerFault returns why a container does not run; "": it runs, or is an init container that is done.
func containerFault(c *corev1.ContainerStatus) string {
	switch {
	case c.State.Waiting != nil:
		return strings.TrimSpace(fmt.Sprintf("its container %s waits (%s) %s", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message))
	case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
		return fmt.Sprintf("its container %s has ended with status %d", c.Name, c.State.Terminated.ExitCode)
	}
	return ""
}

// neededArgs are arguments without which a sidecar does nothing, or does harm.
var neededArgs = map[string][]string{
	"csi-provisioner": {"--node-deployment", "--node-deployment-immediate-binding=false", "--strict-topology", "--immediate-topology=false",
		"--enable-capacity", "--capacity-ownerref-level=0"},
	"csi-snapshotter": {"--node-deployment"},
}

// testedMajor is the major version of each sidecar that this release is tested with; a test compares it with the chart.
var testedMajor = map[string]int{"csi-provisioner": 6, "csi-snapshotter": 8}

// checkSidecars checks the DaemonSet's sidecars.
func checkSidecars(f *facts, found func(where, what, fix string)) {
	if f.daemonSet == nil {
		return
	}
	where := "DaemonSet " + f.daemonSet.Namespace + "/" + f.daemonSet.Name
	if f.container("csi-provisioner") == nil {
		found(where, "the container csi-provisioner is missing: no claim is provisioned", reinstall)
	}
	for _, name := range []string{"csi-provisioner", "csi-snapshotter"} {
		c := f.container(name)
		if c == nil {
			continue
		}
		for _, arg := range neededArgs[name] {
			if !slices.Contains(c.Args, arg) && !slices.Contains(c.Args, arg+"=true") {
				found(where, "its container "+name+" runs without "+arg, reinstall)
			}
		}
		if major, ok := majorOf(c.Image); ok && major < testedMajor[name] {
			found(where, fmt.Sprintf("its container %s runs %s, which is older than the tested version (v%d)", name, c.Image, testedMajor[name]), reinstall)
		}
	}
}

// majorOf reads the major version from an image's tag.
func majorOf(image string) (int, bool) {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	major, _, _ := strings.Cut(strings.TrimPrefix(tag, "v"), ".")
	n, err := strconv.Atoi(major)
	return n, err == nil
}

// checkRights reports the rights that the driver's account lacks, and those that it should not have.
func checkRights(f *facts, found func(where, what, fix string)) {
	namespace, account, _ := f.account()
	where := "ServiceAccount " + namespace + "/" + account
	for _, r := range f.wrongRights {
		if r.withheld {
			found(where, "it may "+r.String()+", which the chart does not give it: whoever has a node's token may, too",
				"if every account may (kubectl auth can-i --list --as system:serviceaccount:default:default), let the API server authorize requests (--authorization-mode=Node,RBAC; microk8s enable rbac); otherwise remove the binding that gives the right")
			continue
		}
		found(where, "it may not "+r.String(), "restore the rule: "+reinstall)
	}
}

// checkNodesAnswer checks whether each driver serves its status page and is ready.
func checkNodesAnswer(f *facts, found func(where, what, fix string)) {
	for _, a := range f.answers {
		_, down := f.isDown(a.node)
		switch {
		case a.err != nil && down:
		case a.err != nil && f.isDeleted(a.node):
			found(a.node, a.err.Error()+"; its Node object is deleted", "if the node exists, restart its kubelet, which creates the object again; if it is lost: docs/howto/lost-nodes.md")
		case a.err != nil:
			found(a.node, a.err.Error(), "kubectl describe node "+a.node+"; read the driver's log there")
		case a.page.NotReady != "":
			found(a.node, "the driver is not ready: "+a.page.NotReady, "resolve that; the driver then continues")
		}
	}
}

// checkRegistration checks whether each CSINode names the driver. The kubelet starts pods with volumes if the driver is registered with it;
// CSINode is what it tells csi-provisioner.
func checkRegistration(f *facts, found func(where, what, fix string)) {
	registered := map[string]bool{}
	for _, n := range f.csiNodes {
		registered[n.Name] = slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == api.DriverName })
	}
	for _, a := range f.answers {
		if registered[a.node] || f.unreadable[theCSINodes] || a.err != nil { // checkNodesAnswer reports the error
			continue
		}
		const logs = "read the log of the driver there, and of its kubelet"
		effect, fix := "no pod with a volume starts there", logs
		switch r := a.page.Checks.Registration; r.State {
		case report.RegistrationRefused:
			fix = "the kubelet refused it (" + r.Error + "): " + logs
		case report.RegistrationWaiting:
			fix = "the kubelet has never contacted the driver: set kubeletDir to its root directory (--root-dir of the kubelet; the driver uses " + a.page.Checks.Kubelet.Path + ")"
		case report.RegistrationElsewhere:
			effect, fix = "csi-provisioner creates no volume there", "a node-driver-registrar must register the driver (--kubelet-registration=false): check whether one runs"
		case report.RegistrationDone:
			effect, fix = "csi-provisioner creates no volume there", "the kubelet has accepted the driver, and names it in CSINode at each registration: restart the kubelet, or the driver's pod, on "+a.node
		}
		found(a.node, "CSINode "+a.node+" does not name "+api.DriverName+": "+effect, fix)
	}
}

// checkPropagation checks whether the driver's mounts propagate to the host, and are below the kubelet's root directory.
func checkPropagation(_ *facts, a *answer, found func(where, what, fix string)) {
	k := a.page.Checks.Kubelet
	switch k.Propagation {
	case report.PropagationShared, report.PropagationUnknown, "":
	case report.PropagationSlave, report.PropagationPrivate:
		found(a.node, fmt.Sprintf("mounts below %s do not leave the driver's container (%s is mounted %s): pods get empty directories", k.Path, k.Mount, k.Propagation),
			"give the volumeMount of "+k.Path+" mountPropagation: Bidirectional, and make the mount shared on the node (mount --make-rshared "+printable.ShellWord(k.Path)+", or the mount that it is in)")
	}
	if k.PodsLink != "" {
		found(a.node, report.DescribePodsLink(k.Path, k.PodsLink), "until then no pod with a volume starts there")
		return
	}
	if !k.Used && k.Path != "" {
		found(a.node, k.Path+" is not the kubelet's root directory: it has no directory pods", "set kubeletDir to the kubelet's --root-dir")
	}
}

// checkSnapshots checks whether the snapshot-controller leaves snapshots to the nodes.
func checkSnapshots(f *facts, found func(where, what, fix string)) {
	const flag = "--enable-distributed-snapshotting"
	fix := "give the snapshot-controller the argument " + flag + "=true, and the right to list and watch nodes"
	if !f.snapshotAPI || f.container("csi-snapshotter") == nil {
		return
	}
	for _, d := range f.controllers {
		c := snapshotController(&d)
		args := append(slices.Clone(c.Command), c.Args...)
		if !slices.Contains(args, flag) && !slices.Contains(args, flag+"=true") {
			found("Deployment "+d.Namespace+"/"+d.Name, "the snapshot-controller runs without "+flag+": a node takes a snapshot only after its driver has labelled the object", fix)
		}
	}
	for _, item := range f.contents {
		switch handle := item.Spec.Source.SnapshotHandle; {
		case item.Labels[api.LabelManagedBy] != "":
		case handle != "":
			found("VolumeSnapshotContent "+item.Name, "it is pre-provisioned, and no node has its snapshot "+handle+" on its disks",
				"compare that with the handles that nodelvm orphans -o json prints on each node; if the snapshot is gone, delete this object")
		default:
			found("VolumeSnapshotContent "+item.Name, "it has no label "+api.LabelManagedBy+", so no node creates its snapshot: the driver on the node of its volume sets the label within a minute",
				"if that lasts, bring back the node with the volume. If the volume is gone, delete the VolumeSnapshot, and remove the object's finalizers: kubectl patch volumesnapshotcontent "+
					printable.ShellWord(item.Name)+` --type merge -p '{"metadata":{"finalizers":null}}'`)
		}
	}
}
