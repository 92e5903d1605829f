// Package report has the one document about a node: its volume groups with their volumes and snapshots, their conditions, and what
// the node offers to storage classes.
//
//	lvm/host -> Inventory -> Node, with file systems, disks and conditions -> the status page, the metrics
//
// The status page is the document as JSON, which a node's driver serves at `/v1/status` on its HTTP port. kubectl nodelvm reads it
// through a port that the API server forwards to the driver's pod, and package pending what explains a waiting claim. It names
// volumes, claims and groups with their UUIDs: the driver serves it without a token only on its pod's loopback address, and elsewhere
// to authorized readers.
package report

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Path and port of the status page.
const (
	Path = "/v1/status"
	Port = "9808"
)

// UnknownGroups begins the sentence of Node.Unknown that says why the driver could not read the groups, and all that is in them.
const UnknownGroups = "the volume groups: "

// Node is the document about one node. While Path is v1, later versions may add fields, but neither remove one nor change its meaning.
type Node struct {
	Node     string    `json:"node"`
	Version  string    `json:"version"`   // of the driver
	Cluster  string    `json:"clusterID"` // UID in the tags of volumes that this driver creates; empty while the driver waits for it
	Time     time.Time `json:"time"`
	NotReady string    `json:"notReady,omitempty"` // why the driver is not ready
	Inventory
	Classes    []Class     `json:"storageClasses,omitempty"` // of the classes in the query
	Conditions []Condition `json:"conditions"`

	Comparison *Comparison `json:"comparison,omitempty"` // nil: the driver has no API server

	Checks  Checks   `json:"checks"`
	Unknown []string `json:"unknown,omitempty"` // sentences: what is unknown, and why
}

// Condition is one condition, with the text of its event.
type Condition struct {
	Type   string     `json:"condition"` // as in the metric nodelvm_volume_condition
	Group  lvm.VGName `json:"volumeGroup"`
	Volume string     `json:"volume,omitempty"`   // the volume's handle; empty if the condition concerns the whole group
	Pool   string     `json:"thinPool,omitempty"` // the thin pool's name
	Text   string     `json:"message"`

	Severity  lvm.Severity `json:"severity"`
	GroupUUID lvm.VGUUID   `json:"volumeGroupUUID,omitempty"` // empty: the condition is about no existing group
	Claim     string       `json:"claim,omitempty"`           // the volume's claim, namespace/name
}

// IsOf reports whether the condition concerns a volume group or a volume in it. Two groups, one of which is lost, may have one name.
func (c Condition) IsOf(g Group) bool {
	return c.Group == g.Name && (c.GroupUUID == "" || c.GroupUUID == g.UUID)
}

// Class is the capacity of the node for a storage class.
type Class struct {
	Name   string  `json:"name"`
	Error  string  `json:"error,omitempty"` // why the driver refuses its parameters
	Offers []Offer `json:"capacity,omitempty"`
}

// Checks are facts about the node that only its driver can determine.
type Checks struct {
	Kernel       string       `json:"kernel"` // its release
	Modules      []Module     `json:"modules"`
	Kubelet      KubeletDir   `json:"kubelet"`
	Registration Registration `json:"registration"`
}

// Module is a kernel module that layouts need.
type Module struct {
	Name  string      `json:"name"`
	State ModuleState `json:"state"`
}

// Names of modules.
const (
	ModuleDM       = "dm-mod"       // for all layouts
	ModuleThinPool = "dm-thin-pool" // for thin
	ModuleRAID     = "dm-raid"      // for the RAID layouts
	ModuleCrypt    = "dm-crypt"     // for encrypted volumes
)

// ModuleState says whether a module is loaded or available.
type ModuleState string

const (
	ModuleLoaded    ModuleState = "loaded" // or part of the kernel itself
	ModuleAvailable ModuleState = "available"
	ModuleMissing   ModuleState = "missing"
)

// KubeletDir describes the kubelet's root directory as configured for the driver.
type KubeletDir struct {
	Path        string      `json:"path"`
	Mount       string      `json:"mount"` // the mount that contains it
	Propagation Propagation `json:"propagation"`
	Used        bool        `json:"used"` // it has the kubelet's directory pods

	PodsLink string `json:"podsLink,omitempty"` // where the directory pods leads, if it is a symbolic link out of the driver's mounts
}

// DescribePodsLink says what is wrong with a KubeletDir with a PodsLink, and what to do.
func DescribePodsLink(path, link string) string {
	return path + "/pods is a symbolic link to " + link + ", and what the driver mounts there does not reach the pods. " +
		"On the node, replace the link by a directory and mount --bind " + link + " on it, or move the whole root directory of the kubelet (--root-dir) and set kubeletDir"
}

// Propagation is the mount propagation from and to the driver's container.
type Propagation string

const (
	PropagationShared  Propagation = "shared"  // mounts reach the host and its pods, as the driver needs
	PropagationSlave   Propagation = "slave"   // the host's mounts reach the container, but not vice versa
	PropagationPrivate Propagation = "private" // mounts stay in the container
	PropagationUnknown Propagation = "unknown"
)

// Registration says whether the driver is registered with the kubelet.
type Registration struct {
	State RegistrationState `json:"state"`
	Error string            `json:"error,omitempty"` // the kubelet's error, if it refused
}

// RegistrationState is the progress of the registration.
type RegistrationState string

const (
	RegistrationElsewhere RegistrationState = "elsewhere" // --kubelet-registration=false: a sidecar does it
	RegistrationWaiting   RegistrationState = "waiting"   // the kubelet has not contacted the driver yet
	RegistrationDone      RegistrationState = "done"
	RegistrationRefused   RegistrationState = "refused"
)

// Query returns the query for a page with the node's capacity for these storage classes: parameters by the class's name.
func Query(classes map[string]map[string]string) url.Values {
	query := url.Values{}
	for name, parameters := range classes {
		values := url.Values{}
		for key, value := range parameters {
			values.Set(key, value)
		}
		query.Add("class", name+"?"+values.Encode())
	}
	return query
}

// ParseClass parses one value of the query's "class": a class's name and its parameters.
func ParseClass(value string) (name string, parameters map[string]string, err error) {
	name, rest, _ := strings.Cut(value, "?")
	values, err := url.ParseQuery(rest)
	if err != nil {
		return name, nil, fmt.Errorf("the query's class %q is not NAME?PARAMETER=VALUE&...: %w", name, err)
	}
	parameters = make(map[string]string, len(values))
	for key := range values {
		parameters[key] = values.Get(key)
	}
	return name, parameters, nil
}

// Comparison is the result of the driver's last comparison of the node's disks with the objects of the cluster.
type Comparison struct {
	Time         time.Time      `json:"time,omitzero"`   // when it ended; zero: no comparison has ended yet
	Error        string         `json:"error,omitempty"` // why a later comparison failed
	Unreferenced []Unreferenced `json:"unreferencedVolumes"`
}

// Unreferenced is a managed volume or snapshot that no object in this cluster refers to. The driver never removes it.
type Unreferenced struct {
	Reason      Reason     `json:"reason"`
	Group       lvm.VGName `json:"volumeGroup"`
	LV          string     `json:"lv"`
	Handle      string     `json:"handle"`
	Name        string     `json:"name"` // of its former PersistentVolume, or of the snapshot
	Size        lvm.Bytes  `json:"size"`
	Snapshot    bool       `json:"snapshot"`
	FormerClaim string     `json:"formerClaim,omitempty"`
	Cluster     string     `json:"clusterID"` // that created it
	Created     time.Time  `json:"created,omitzero"`
	Text        string     `json:"message"`
}

// Reason says why no object in this cluster refers to a volume.
type Reason string

const (
	ReasonUnreferenced Reason = "unreferenced"  // no PersistentVolume or VolumeSnapshotContent refers to it
	ReasonAbandoned    Reason = "abandoned"     // its claim uses another volume, or was released
	ReasonOtherCluster Reason = "other-cluster" // another cluster created it
)

// Reasons lists all reasons.
var Reasons = []Reason{ReasonUnreferenced, ReasonAbandoned, ReasonOtherCluster}
