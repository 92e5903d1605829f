// Package groupsnapshot takes and deletes the group snapshots of one node's volumes that the cluster asks for. It does for
// VolumeGroupSnapshotContents what csi-snapshotter does for VolumeSnapshotContents. csi-snapshotter 8.7 cannot: the snapshot controller assigns no
// VolumeGroupSnapshotContent to a node, and one node's csi-snapshotter sees neither those without a label nor their class.
//
// The node with the first volume of a content labels it with its name, and from then on it alone acts: it marks the content, takes the group
// snapshot, writes the status, and removes the mark. The snapshot controller then makes the members' VolumeSnapshots and contents, which the agent
// labels as any others. A content to delete comes with an annotation of the snapshot controller: the node deletes the group snapshot, clears the
// status, and removes the finalizer. plan.go decides what to do; actor.go does it for one content
// at a time, and takes those of each namespace in turn (queue.go).
//
// A tenant chooses which claims are in a group, through labels. A group over several nodes gets an error in its status, and nothing is created.
package groupsnapshot
