package conformance

import "regexp"

// Exclusion is a set of specs that Run does not run.
type Exclusion struct {
	Specs  string         // which ones, for docs/development/conformance.md
	Class  string         // the only class that it applies to; "" means all but groups
	Reason string         // why, for docs/development/conformance.md
	match  *regexp.Regexp // of a spec's full text
}

// Exclusions lists all specs that are not claimed. The first one that matches a spec has its reason.
var Exclusions = []Exclusion{
	{Specs: "other operating systems: ntfs", match: regexp.MustCompile(`\(ntfs\)`),
		Reason: "not claimed: the nodes run Linux"},
	{Specs: "inline ephemeral volumes", match: regexp.MustCompile(`CSI Ephemeral-volume|: Inline-volume`),
		Reason: "not claimed; generic ephemeral volumes, which do the same, run"},
	{Specs: "pre-provisioned volumes", match: regexp.MustCompile(`Pre-provisioned PV`),
		Reason: "skipped by the suite for every external driver, because it cannot create such a volume"},
	{Specs: "ext3", match: regexp.MustCompile(`\(ext3\)`),
		Reason: "not claimed: ext4, xfs and btrfs are"},
	{Specs: "volume group snapshots", match: regexp.MustCompile(`(?i)volumegroupsnapshot`),
		Reason: "run with the class groups, whose volumes are on one node"},
	{Specs: "changed blocks between snapshots", match: regexp.MustCompile(`snapshotmetadata`),
		Reason: "not claimed"},
	{Specs: "SELinux", match: regexp.MustCompile(`SELinux`),
		Reason: "need hosts with SELinux"},
	{Specs: "restarts of the kubelet", match: regexp.MustCompile(`\[Disruptive\]`),
		Reason: "the suite restarts kubelets through ssh and systemd, which lab nodes lack; `make test-e2e` restarts drivers and nodes itself"},
	{Specs: "claims on two nodes at once", match: regexp.MustCompile(`on different node`),
		Reason: "not claimed: a volume stays on its node"},
	{Specs: "immediate binding", match: regexp.MustCompile(`immediate[ -]binding`),
		Reason: "not claimed: the scheduler chooses the node first"},
	{Specs: "volume limits", match: regexp.MustCompile(`volumeLimits`),
		Reason: "not claimed: the driver sets none"},
	{Specs: "volume populators", match: regexp.MustCompile(`any volume data source`),
		Reason: "need a populator's images, which the lab lacks"},
	{Specs: "performance of many volumes", match: regexp.MustCompile(`within performance constraints`),
		Reason: "a benchmark; `make bench` measures the driver"},
	{Specs: "snapshots of persistent volumes in specs of ephemeral ones, and vice versa",
		match:  regexp.MustCompile(`Ephemeral Snapshot .*\(persistent\)$|(Dynamic|Pre-provisioned) Snapshot .*\(ephemeral\)$`),
		Reason: "defined for both, skipped by the suite for one"},
	{Specs: "raw devices in specs of file systems, and vice versa",
		match: regexp.MustCompile(`\((filesystem volmode|ext4|xfs)\).* multiVolume .*different volume mode|` +
			`\(block volmode\).* (ephemeral should create read-only|provisioning should mount multiple PV|provisioning should provision (storage with mount options|correct filesystem size))`),
		Reason: "defined for both, skipped by the suite for one"},
	{Specs: "a volume and the restore of its snapshot in one pod, default file system",
		match:  regexp.MustCompile(`\(filesystem volmode\).* multiVolume .*restored snapshot`),
		Reason: "skipped by the suite, whose pattern lacks a snapshot type; those with ext4, xfs and a raw device run"},
	{Specs: "snapshots", Class: "linear", match: regexp.MustCompile(`(?i)snapshot`),
		Reason: "not claimed for thick volumes; run with the thin class"},
	{Specs: "clones", Class: "linear", match: regexp.MustCompile(`pvc data source|its clone`),
		Reason: "not claimed for thick volumes; run with the thin class"},
}

// exclusionOf returns the index of the first exclusion that matches s, or -1 if s is claimed.
func exclusionOf(s Spec) int {
	if s.Class == groups {
		return -1
	}
	for i, e := range Exclusions {
		if (e.Class == "" || e.Class == s.Class) && e.match.MatchString(s.Text) {
			return i
		}
	}
	return -1
}
