package conformance

import "regexp"

// Exclusion is a set of specs that are not run.
type Exclusion struct {
	Specs  string         // which ones, for docs/development/testing.md
	Class  string         // the only class that it holds for; "" means all
	Reason string         // why, for docs/development/testing.md
	match  *regexp.Regexp // of a spec's full text
}

// Exclusions is the one list of what is left out. The first that matches a spec tells its reason.
var Exclusions = []Exclusion{
	{Specs: "other operating systems: ntfs", match: regexp.MustCompile(`\(ntfs\)`),
		Reason: "not claimed: the nodes run Linux"},
	{Specs: "inline volumes of a pod, not ephemeral claims", match: regexp.MustCompile(`CSI Ephemeral-volume|: Inline-volume`),
		Reason: "not claimed: the driver has no inline volumes; generic ephemeral ones, which can do the same, are run"},
	{Specs: "volumes made by hand", match: regexp.MustCompile(`Pre-provisioned PV`),
		Reason: "the suite has no way to make a volume other than through the driver: it skips them for every external driver"},
	{Specs: "ext3", match: regexp.MustCompile(`\(ext3\)`),
		Reason: "not claimed: ext4, xfs and btrfs are"},
	{Specs: "snapshots of several volumes at once", match: regexp.MustCompile(`(?i)volumegroupsnapshot`),
		Reason: "not claimed: group snapshots"},
	{Specs: "changed blocks between snapshots", match: regexp.MustCompile(`snapshotmetadata`),
		Reason: "not claimed: snapshot metadata"},
	{Specs: "volume attributes classes", match: regexp.MustCompile(`volume-modify`),
		Reason: "not claimed: there is nothing to modify but the size"},
	{Specs: "SELinux", match: regexp.MustCompile(`SELinux`),
		Reason: "needs hosts with SELinux"},
	{Specs: "restarts of the kubelet", match: regexp.MustCompile(`\[Disruptive\]`),
		Reason: "the suite restarts kubelets through ssh and systemd, which a lab node does not have; `make test-e2e` restarts drivers and nodes itself"},
	{Specs: "claims on two nodes at once", match: regexp.MustCompile(`on different node`),
		Reason: "not claimed: a volume is where its disk is"},
	{Specs: "the same source mounted read-only many times", match: regexp.MustCompile(`\(ROX mode\)|single read-only volume`),
		Reason: "not claimed: the access mode ReadOnlyMany"},
	{Specs: "immediate binding", match: regexp.MustCompile(`immediate[ -]binding`),
		Reason: "not claimed: the scheduler chooses the node first"},
	{Specs: "volume limits", match: regexp.MustCompile(`volumeLimits`),
		Reason: "not claimed: the driver sets none"},
	{Specs: "volume populators", match: regexp.MustCompile(`any volume data source`),
		Reason: "needs images of a populator, which cannot be had without a registry"},
	{Specs: "speed of many volumes", match: regexp.MustCompile(`within performance constraints`),
		Reason: "measures; what is measured here stands in performance.md"},
	{Specs: "snapshots of persistent volumes among those of ephemeral ones, and the other way round",
		match:  regexp.MustCompile(`Ephemeral Snapshot .*\(persistent\)$|(Dynamic|Pre-provisioned) Snapshot .*\(ephemeral\)$`),
		Reason: "each is defined for both and skipped by the suite itself for one"},
	{Specs: "raw devices in specs of file systems, and the other way round",
		match: regexp.MustCompile(`\((filesystem volmode|ext4|xfs)\).* multiVolume .*different volume mode|` +
			`\(block volmode\).* (ephemeral should create read-only|provisioning should mount multiple PV|provisioning should provision (storage with mount options|correct filesystem size))`),
		Reason: "each is defined for both and skipped by the suite itself for one"},
	{Specs: "a volume beside the restore of its snapshot, both with the usual file system",
		match:  regexp.MustCompile(`\(filesystem volmode\).* multiVolume .*restored snapshot`),
		Reason: "the suite itself skips it, for want of a kind of snapshot in that pattern; those with ext4, xfs and a raw device are run"},
	{Specs: "snapshots", Class: "linear", match: regexp.MustCompile(`(?i)snapshot`),
		Reason: "not claimed of thick volumes: run with the thin class"},
	{Specs: "clones", Class: "linear", match: regexp.MustCompile(`pvc data source|its clone`),
		Reason: "not claimed of thick volumes: run with the thin class"},
}

// exclusionOf answers the index in Exclusions of the first one that holds for s, -1 if s is claimed.
func exclusionOf(s Spec) int {
	for i, e := range Exclusions {
		if (e.Class == "" || e.Class == s.Class) && e.match.MatchString(s.Text) {
			return i
		}
	}
	return -1
}
