// Package statuspage is what a node's driver tells about itself: the JSON document that `GET /v1/status` answers on the
// driver's HTTP port, and that kubectl nodelvm reads by a port that the API server forwards to the driver's pods. Both sides
// share these types. It names volumes, claims and groups with their UUIDs: the driver serves it on its pod's loopback address, and
// elsewhere to those who may get it.
package statuspage

import (
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/inventory"
)

// Where the page is.
const (
	Path = "/v1/status"
	Port = "9808"
)

// UnknownGroups begins the sentence of Page.Unknown that says why the groups, and all that is in them, could not be read.
const UnknownGroups = "the volume groups: "

// Page is what one node tells. Fields are added, and neither change their meaning nor go away, as long as Path is v1.
type Page struct {
	Node     string    `json:"node"`
	Version  string    `json:"version"`   // of the driver
	Cluster  string    `json:"clusterID"` // UID that volumes made here are tagged with; empty while the driver waits for it
	Time     time.Time `json:"time"`
	NotReady string    `json:"notReady,omitempty"` // why the driver cannot work now
	inventory.Inventory
	Classes    []Class     `json:"storageClasses,omitempty"` // the answers to ClassQuery
	Conditions []Condition `json:"conditions"`

	Comparison *Comparison `json:"comparison,omitempty"` // nil: the driver has no API server

	Checks  Checks   `json:"checks"`
	Unknown []string `json:"unknown,omitempty"` // sentences: what is unknown, and why
}

// Condition is one condition, with the text of its event.
type Condition struct {
	Type   string           `json:"condition"` // as the metric nodelvm_volume_condition says it
	Group  inventory.VGName `json:"volumeGroup"`
	Volume string           `json:"volume,omitempty"`   // the volume's handle; empty where the whole group is concerned
	Pool   string           `json:"thinPool,omitempty"` // the thin pool's name
	Text   string           `json:"message"`

	Severity lvm.Severity `json:"severity"`
}

// Class is what the node offers to a storage class.
type Class struct {
	Name   string            `json:"name"`
	Error  string            `json:"error,omitempty"` // why its parameters are refused
	Offers []inventory.Offer `json:"capacity,omitempty"`
}

// Checks are facts about the node that only the driver in it can see.
type Checks struct {
	Kernel       string       `json:"kernel"` // its release
	Modules      []Module     `json:"modules"`
	Kubelet      KubeletDir   `json:"kubelet"`
	Registration Registration `json:"registration"`
}

// Module is a module of the kernel that layouts need.
type Module struct {
	Name  string      `json:"name"`
	State ModuleState `json:"state"`
}

// Names of modules.
const (
	ModuleDM       = "dm-mod"       // for all layouts
	ModuleThinPool = "dm-thin-pool" // for thin
	ModuleRAID     = "dm-raid"      // for the RAID layouts
)

// ModuleState says how a module can be had.
type ModuleState string

const (
	ModuleLoaded    ModuleState = "loaded" // or part of the kernel itself
	ModuleAvailable ModuleState = "available"
	ModuleMissing   ModuleState = "missing"
)

// KubeletDir is what the driver sees at its configured root directory of the kubelet.
type KubeletDir struct {
	Path        string      `json:"path"`
	Mount       string      `json:"mount"` // the mount that it is in
	Propagation Propagation `json:"propagation"`
	Used        bool        `json:"used"` // the kubelet's pods are there
}

// Propagation says whom a mount made there reaches.
type Propagation string

const (
	PropagationShared  Propagation = "shared"  // the host and its pods: what is needed
	PropagationSlave   Propagation = "slave"   // what the host mounts comes in, and nothing goes out
	PropagationPrivate Propagation = "private" // this container alone
	PropagationUnknown Propagation = "unknown"
)

// Registration says whether the kubelet knows the driver.
type Registration struct {
	State RegistrationState `json:"state"`
	Error string            `json:"error,omitempty"` // the kubelet's, if it refused
}

// RegistrationState is how far the registration has come.
type RegistrationState string

const (
	RegistrationElsewhere RegistrationState = "elsewhere" // --kubelet-registration=false: a sidecar does it
	RegistrationWaiting   RegistrationState = "waiting"   // the kubelet has not asked yet
	RegistrationDone      RegistrationState = "done"
	RegistrationRefused   RegistrationState = "refused"
)
