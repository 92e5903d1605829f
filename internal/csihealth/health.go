// Package csihealth translates the driver's conditions into the terms of CSI's health calls (CSI spec 1.13, "NodeGetVolumeHealth",
// "NodeGetStorageHealth", "ControllerListVolumeHealth"; KEP-1432).
//
// The flow: Recent.Found (what the driver has found in the last seconds) -> Volume, Volumes or Storage, which are pure functions.
//
// Caveats. A status tells a controller what it may do, so each is the mildest that is true: a volume is INACCESSIBLE only if its reads
// fail or wait. None is DATA_LOSS, because a disk may come back. None is STORAGE_UNREACHABLE, because a node has several volume groups.
package csihealth

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// term is a condition in CSI's terms: one of both is zero.
type term struct {
	volume  csi.VolumeHealthErrorType
	storage csi.StorageHealthErrorType
}

const (
	degraded        = csi.VolumeHealthErrorType_DEGRADED
	inaccessible    = csi.VolumeHealthErrorType_INACCESSIBLE
	storageDegraded = csi.StorageHealthErrorType_STORAGE_DEGRADED
)

// terms has all conditions. One with no status is not about health: its storage works, and an admin or the volume's user has
// something to decide.
var terms = map[lvm.ConditionType]term{
	lvm.ConditionVolumeDegraded:        {volume: degraded},
	lvm.ConditionVolumeRebuilding:      {volume: degraded},
	lvm.ConditionVolumeDataMissing:     {volume: inaccessible},
	lvm.ConditionVolumeOnRemovedDisk:   {volume: inaccessible},
	lvm.ConditionVolumeSuspended:       {volume: inaccessible},
	lvm.ConditionThinPoolFull:          {volume: degraded},
	lvm.ConditionThinPoolFailed:        {volume: degraded},
	lvm.ConditionFileSystemFull:        {volume: degraded},
	lvm.ConditionFileSystemReadOnly:    {volume: degraded},
	lvm.ConditionPhysicalVolumeMissing: {storage: storageDegraded},
	lvm.ConditionDiskUnresponsive:      {storage: storageDegraded},
	lvm.ConditionVolumeGroupUnusable:   {storage: storageDegraded},
	lvm.ConditionThinPoolNearlyFull:    {storage: storageDegraded},

	lvm.ConditionEncryptionHeaderDamaged:     {volume: degraded},
	lvm.ConditionThinPoolTransactionMismatch: {storage: storageDegraded},

	lvm.ConditionFileSystemNearlyFull:       {},
	lvm.ConditionFileSystemInodesNearlyUsed: {},
	lvm.ConditionSignatureFound:             {},
	lvm.ConditionMixedBlockSizes:            {},
	lvm.ConditionVolumeGroupSetupFailed:     {},
	lvm.ConditionPhysicalVolumeNotAccepted:  {},
	lvm.ConditionIOLimitsNotSet:             {},
}

// Limits of Kubernetes' objects (k8s.io/api/core/v1, VolumeHealthCondition; storage/v1, StorageHealthCondition). An entry beyond them would
// make the API server refuse the whole status of the pod.
const (
	maxMessage = 1024 // bytes
	maxEntries = 16
)

// Volume returns the health of a volume; without statuses: no condition of it is known.
func Volume(id lvm.ID, found []lvm.Condition) *csi.VolumeHealth {
	health := &csi.VolumeHealth{VolumeId: id.String()}
	for _, f := range found {
		status := terms[f.Type].volume
		known := slices.ContainsFunc(health.HealthStatuses, func(e *csi.VolumeHealth_VolumeHealthEntry) bool { return e.GetReason() == string(f.Type) })
		if f.Volume.UUID == "" || f.Volume.ID != id || status == 0 || known || len(health.HealthStatuses) == maxEntries {
			continue
		}
		health.HealthStatuses = append(health.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{Status: status, Reason: string(f.Type), Message: cut(f.Text)})
	}
	return health
}

// Unhealthy returns the volumes with a status, in ascending order of ID.String.
func Unhealthy(found []lvm.Condition) []lvm.ID {
	var ids []lvm.ID
	for _, f := range found {
		if f.Volume.UUID != "" && terms[f.Type].volume != 0 {
			ids = append(ids, f.Volume.ID)
		}
	}
	slices.SortFunc(ids, func(a, b lvm.ID) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(ids)
}

// Storage returns the health of the node's volume groups: one entry for each type of condition, with the texts of all groups.
func Storage(found []lvm.Condition) []*csi.NodeGetStorageHealthResponse_StorageBackendHealth {
	var entries []*csi.NodeGetStorageHealthResponse_StorageBackendHealth
	for _, f := range found {
		status := terms[f.Type].storage
		if status == 0 || f.Volume.UUID != "" {
			continue
		}
		i := slices.IndexFunc(entries, func(e *csi.NodeGetStorageHealthResponse_StorageBackendHealth) bool {
			return e.GetReason() == string(f.Type)
		})
		switch {
		case i >= 0:
			entries[i].Message = cut(entries[i].GetMessage() + "; " + f.Text)
		case len(entries) < maxEntries:
			entries = append(entries, &csi.NodeGetStorageHealthResponse_StorageBackendHealth{Status: status, Reason: string(f.Type), Message: cut(f.Text)})
		}
	}
	return entries
}

// cut shortens a text to maxMessage bytes of valid UTF-8.
func cut(text string) string {
	const end = "..."
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= maxMessage {
		return text
	}
	text = text[:maxMessage-len(end)]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + end
}
