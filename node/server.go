// Package node implements the CSI Node service of one node: it turns a volume's device into a path that a pod can use.
//
// The lifecycle of a volume here: NodeStageVolume -> parseStage -> Devices.ActivateAs ("/dev/dm-3") -> planStage (what is at
// the staging path?) -> Tools.Probe -> filesystem.PlanContent (what is on the device?) -> create or check the file system, mount it,
// and resize it if its device is larger; then NodePublishVolume -> planPublish -> a bind mount at the pod's path. The functions
// of parse.go, and those named plan*, are pure: they derive the action from the request and the present state. Package
// filesystem works on the content of devices, package mount on the machine's mounts, and package luks on encrypted volumes.
//
// Caveats. The driver formats a device only with proof that no file system on it was ever mounted. Unpublishing and unstaging
// never run LVM, so pods can end whatever state the disks are in.
//
// Errors leave this package with the kinds of package lvm; cmd/nodelvm has the one table that maps kinds to gRPC codes.
package node

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/internal/csihealth"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/iolimit"
	"github.com/nodelvm/nodelvm/node/luks"
	"github.com/nodelvm/nodelvm/node/mount"
)

// Devices is what this service needs of the node's LVM; *host.Host implements it. Every error has an lvm.Kind.
type Devices interface {
	// ActivateAs returns the volume, which is ready, and its device ("/dev/dm-3"), and creates the device if necessary. lvm.KindNotFound:
	// the volume does not exist, or another one has its name now; lvm.KindNotLocal: its group is not on this node; lvm.KindConflict: it
	// has another encryption.
	ActivateAs(ctx context.Context, id lvm.ID, uuid string, encryption lvm.Encryption) (v lvm.Volume, device string, err error)
	// BeginReplay records that the replay of the journal of a read-only copy begins, before anything is written to it.
	BeginReplay(ctx context.Context, id lvm.ID, uuid string) error
	// SetReplayed makes a read-only copy read-only for the kernel, after the replay of its journal, and records that. lvm.KindInUse: its
	// device is open.
	SetReplayed(ctx context.Context, id lvm.ID, uuid string) error
	// Device returns the device if the volume is active, without LVM.
	Device(ctx context.Context, id lvm.ID, uuid string) (device string, active bool, err error)
	// ActiveDevices is Device for many volumes, from one reading that may be half a second old. Inactive volumes are absent.
	ActiveDevices(ctx context.Context, volumes []lvm.Volume) (map[lvm.ID]lvm.Device, error)
	// Opening keeps the volume from being held for a move until opened is called. lvm.KindBusy: that is under way.
	Opening(id lvm.ID, uuid string) (opened func(), err error)
	// Binding keeps the device of a volume from being replaced by another one until bound is called. lvm.KindBusy: that is under way.
	Binding(id lvm.ID) (bound func(), err error)
	// Owns reports whether the device of this number is the volume's, or no longer exists. It asks device-mapper, not LVM.
	Owns(ctx context.Context, id lvm.ID, device uint64) (bool, error)
	// Lookup returns a ready volume, or lvm.KindNotFound or lvm.KindNotLocal. It starts no process while the disks are
	// readable.
	Lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error)
	// List returns the ready volumes of this cluster.
	List(ctx context.Context) ([]lvm.Volume, error)
}

// Config has the node that the service serves, and its dependencies.
type Config struct {
	NodeName    string // the node's name: CSI node id and topology value
	VolumeLimit int64  // max_volumes_per_node; 0: no limit
	Devices     Devices
	Encryption  Encryption       // nil: this node's
	IOLimits    *iolimit.Limiter // nil: the driver sets no limits
	Log         *slog.Logger     // nil: slog.Default()
	// Conditions returns the conditions of this node's volumes and groups, and which volumes there are, for CSI's health calls; nil: the service
	// does not claim these.
	Conditions func(context.Context) (csihealth.Found, error)

	// nil: this machine's
	Tools              Tools
	Mounts             Mounts
	MountedFileSystems MountedFileSystems
	BlockDevices       BlockDevices
}

// Server implements csi.NodeServer for one node. Its only state is the operations in flight.
type Server struct {
	csi.UnimplementedNodeServer
	name          string
	limit         int64
	devices       Devices
	tools         Tools
	mounts        Mounts
	mounted       MountedFileSystems
	block         BlockDevices
	encryption    Encryption
	limits        ioLimits
	statistics    func() (map[uint64]iolimit.Statistics, error)
	log           *slog.Logger
	conditions    func(context.Context) (csihealth.Found, error)
	locks         operationLocks
	usage         usageReader
	signatureScan sync.Mutex // held during a scan of the volumes for signatures
}

// New returns the service of a node.
func New(c Config) *Server {
	log, machine := cmp.Or(c.Log, slog.Default()), mount.New()
	return &Server{
		name: c.NodeName, limit: c.VolumeLimit, log: log, devices: c.Devices,
		limits:     ioLimits{Limiter: c.IOLimits},
		conditions: c.Conditions,
		statistics: iolimit.ReadStatistics,
		encryption: cmp.Or[Encryption](c.Encryption, luks.New(log)),
		tools:      cmp.Or[Tools](c.Tools, filesystem.New()),
		mounts:     cmp.Or[Mounts](c.Mounts, machine),
		mounted:    cmp.Or[MountedFileSystems](c.MountedFileSystems, machine),
		block:      cmp.Or[BlockDevices](c.BlockDevices, machine),
	}
}

// NodeGetInfo returns the node's name and topology (CSI spec, "NodeGetInfo").
func (s *Server) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{
		NodeId:             s.name,
		MaxVolumesPerNode:  s.limit,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{api.TopologyKey: s.name}},
	}, nil
}

// NodeGetCapabilities returns what this service supports (CSI spec, "NodeGetCapabilities").
func (s *Server) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	reply := &csi.NodeGetCapabilitiesResponse{}
	capabilities := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if s.conditions != nil {
		capabilities = append(capabilities, csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH, csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH)
	}
	for _, rpc := range capabilities {
		reply.Capabilities = append(reply.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: rpc}},
		})
	}
	return reply, nil
}

// operationLocks has a lock for each volume and path with an operation in flight. A second operation gets lvm.KindBusy at
// once: the CO retries (CSI spec, "Concurrency").
type operationLocks struct {
	mu   sync.Mutex
	held map[string]int // by volume handle or path: -1 held exclusively, n > 0 shared by n
}

// lock locks a name exclusively: staging and unstaging a volume, publishing one for one pod or as a read-only raw device, or any work at
// a target path.
func (l *operationLocks) lock(name string) (release func(), err error) { return l.acquire(name, -1) }

// lockShared locks a volume against exclusive holders: several pods may publish it at once, but not while it is being unstaged,
// when a bind mount could bind the empty directory.
func (l *operationLocks) lockShared(name string) (release func(), err error) {
	return l.acquire(name, 1)
}

func (l *operationLocks) acquire(name string, by int) (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.held[name]; n < 0 || by < 0 && n > 0 {
		return nil, lvm.Errorf(lvm.KindBusy, "another operation on %s is in flight on this node; retry", name)
	}
	if l.held == nil {
		l.held = map[string]int{}
	}
	l.held[name] += by
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held[name] -= by; l.held[name] == 0 {
			delete(l.held, name)
		}
	}, nil
}
