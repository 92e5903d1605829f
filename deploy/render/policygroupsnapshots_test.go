package main

import (
	groupsnapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// groupContent is for a group snapshot of two volumes in two volume groups; node "": without a label.
func groupContent(node string) *groupsnapshots.VolumeGroupSnapshotContent {
	c := &groupsnapshots.VolumeGroupSnapshotContent{ObjectMeta: meta.ObjectMeta{Name: "groupsnapcontent-1"}}
	if node != "" {
		c.Labels = map[string]string{managedBy: node}
	}
	c.Spec.Driver, c.Spec.Source.VolumeHandles = "nodelvm.io", []string{handle, otherUUID + "/pvc-2"}
	c.Spec.DeletionPolicy = snapshots.VolumeSnapshotContentDelete
	return c
}

// changedGroup changes a content.
func changedGroup(c *groupsnapshots.VolumeGroupSnapshotContent, change func(*groupsnapshots.VolumeGroupSnapshotContent)) *groupsnapshots.VolumeGroupSnapshotContent {
	change(c)
	return c
}

// existingGroup is made by hand for a group snapshot that exists.
func existingGroup(node string) *groupsnapshots.VolumeGroupSnapshotContent {
	return changedGroup(groupContent(node), func(c *groupsnapshots.VolumeGroupSnapshotContent) {
		c.Spec.Source = groupsnapshots.VolumeGroupSnapshotContentSource{GroupSnapshotHandles: &groupsnapshots.GroupSnapshotHandles{
			VolumeGroupSnapshotHandle: groupUUID + "/some-group", VolumeSnapshotHandles: []string{groupUUID + "/some-snapshot"}}}
	})
}

// takenGroup notes a group snapshot, and one member of a volume.
func takenGroup(c *groupsnapshots.VolumeGroupSnapshotContent, group, volume, snapshot string) *groupsnapshots.VolumeGroupSnapshotContent {
	yes := true
	c.Status = &groupsnapshots.VolumeGroupSnapshotContentStatus{ReadyToUse: &yes}
	if group != "" {
		c.Status.VolumeGroupSnapshotHandle = &group
		c.Status.VolumeSnapshotInfoList = []groupsnapshots.VolumeSnapshotInfo{{VolumeHandle: volume, SnapshotHandle: snapshot, ReadyToUse: &yes}}
	}
	return c
}

func groupMark(c *groupsnapshots.VolumeGroupSnapshotContent) {
	c.Annotations = map[string]string{"groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created": "yes"}
}

func groupFinalizer(c *groupsnapshots.VolumeGroupSnapshotContent) {
	c.Finalizers = []string{"groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection"}
}

// groupSnapshotRequests are what is written of VolumeGroupSnapshotContents.
func groupSnapshotRequests() []request {
	const hex = "0123456789abcdef0123456789abcdef"
	group, member, second := groupUUID+"/g-"+hex, groupUUID+"/s-"+hex, otherUUID+"/s-"+hex
	thirdUUID := "cccccc-cccc-cccc-cccc-cccc-cccc-cccccc"
	finalized := func(node string) *groupsnapshots.VolumeGroupSnapshotContent {
		return changedGroup(groupContent(node), groupFinalizer)
	}
	annotated := func(c *groupsnapshots.VolumeGroupSnapshotContent) { c.Annotations = map[string]string{"a": "b"} }
	return []request{
		{name: "label a group that the controller made", before: groupContent(""), now: groupContent("node-1")},
		{name: "label a group that was made by hand", before: existingGroup(""), now: existingGroup("node-1")},
		{name: "mark a group while it is taken", before: groupContent("node-1"), now: changedGroup(groupContent("node-1"), groupMark)},
		{name: "take the mark of a group away", before: changedGroup(groupContent("node-1"), groupMark), now: groupContent("node-1")},
		{name: "let go of a group", before: finalized("node-1"), now: groupContent("node-1")},
		{name: "note that a group is taken", sub: "status", before: groupContent("node-1"), now: takenGroup(groupContent("node-1"), group, handle, member)},
		{name: "note a member in the second volume group", sub: "status", before: groupContent("node-1"), now: takenGroup(groupContent("node-1"), group, otherUUID+"/pvc-2", second)},
		{name: "note a group that was there already", sub: "status", before: existingGroup("node-1"), now: takenGroup(existingGroup("node-1"), groupUUID+"/some-group", handle, groupUUID+"/some-snapshot")},
		{name: "note an error of a group", sub: "status", before: groupContent("node-1"), now: takenGroup(groupContent("node-1"), "", "", "")},
		{name: "note that a group is gone", sub: "status", before: takenGroup(groupContent("node-1"), group, handle, member), now: takenGroup(groupContent("node-1"), "", "", "")},

		{name: "make a group", now: groupContent("node-1"), refused: mayOnly},
		{name: "remove a group", before: groupContent("node-1"), refused: mayOnly},
		{name: "label a group for another node", before: groupContent(""), now: groupContent("node-2"), refused: mayOnly},
		{name: "take another node's group over", before: groupContent("node-2"), now: groupContent("node-1"), refused: mayOnly},
		{name: "give a group away", before: groupContent("node-1"), now: groupContent("node-2"), refused: mayOnly},
		{name: "label a group, and mark it", before: groupContent(""), now: changedGroup(groupContent("node-1"), groupMark), refused: mayOnly},
		{name: "label a group, and let go of it", before: finalized(""), now: groupContent("node-1"), refused: mayOnly},
		{name: "label a group by way of the status", sub: "status", before: groupContent(""), now: groupContent("node-1"), refused: mayOnly},
		{name: "label another driver's group", before: changedGroup(groupContent(""), func(c *groupsnapshots.VolumeGroupSnapshotContent) { c.Spec.Driver = "other.io" }),
			now: changedGroup(groupContent("node-1"), func(c *groupsnapshots.VolumeGroupSnapshotContent) { c.Spec.Driver = "other.io" }), refused: mayOnly},
		{name: "mark another node's group", before: groupContent("node-2"), now: changedGroup(groupContent("node-2"), groupMark), refused: mayOnly},
		{name: "annotate a group", before: groupContent("node-1"), now: changedGroup(groupContent("node-1"), annotated), refused: mayOnly},
		{name: "hold a group", before: groupContent("node-1"), now: finalized("node-1"), refused: mayOnly},
		{name: "change what becomes of a group", before: groupContent("node-1"),
			now: changedGroup(groupContent("node-1"), func(c *groupsnapshots.VolumeGroupSnapshotContent) {
				c.Spec.DeletionPolicy = snapshots.VolumeSnapshotContentRetain
			}), refused: mayOnly},
		{name: "call another node's group taken", sub: "status", before: groupContent("node-2"), now: takenGroup(groupContent("node-2"), group, handle, member), refused: mayOnly},
		{name: "note a group of another volume group", sub: "status", before: groupContent("node-1"), now: takenGroup(groupContent("node-1"), thirdUUID+"/g-"+hex, handle, member), refused: mayOnly},
		{name: "note a snapshot as a group", sub: "status", before: groupContent("node-1"), now: takenGroup(groupContent("node-1"), member, handle, member), refused: mayOnly},
		{name: "note a member of a volume that is not in the group", sub: "status", before: groupContent("node-1"), now: takenGroup(groupContent("node-1"), group, groupUUID+"/pvc-3", member), refused: mayOnly},
		{name: "note a member in another volume group than its volume", sub: "status", before: groupContent("node-1"), now: takenGroup(groupContent("node-1"), group, handle, second), refused: mayOnly},
		{name: "note a volume as a member", sub: "status", before: groupContent("node-1"), now: takenGroup(groupContent("node-1"), group, handle, handle), refused: mayOnly},
		{name: "note another group than the one that was there", sub: "status", before: existingGroup("node-1"), now: takenGroup(existingGroup("node-1"), group, handle, groupUUID+"/some-snapshot"), refused: mayOnly},
		{name: "note, and annotate a group", sub: "status", before: groupContent("node-1"), now: changedGroup(takenGroup(groupContent("node-1"), group, handle, member), annotated), refused: mayOnly},
	}
}
