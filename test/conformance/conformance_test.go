package conformance

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

const driver = "External Storage [Driver: nodelvm.io] "

func TestGroup(t *testing.T) {
	for text, want := range map[string]string{
		"[Testpattern: Dynamic PV (default fs)] provisioning should provision storage with mount options":                                        "provisioning",
		"[Testpattern: Dynamic PV (xfs)] [Slow] volumes should store data":                                                                       "volumes",
		"[Testpattern: Dynamic PV (default fs)] fsgroupchangepolicy (Always)[LinuxOnly], pod created":                                            "fsgroupchangepolicy",
		"[Testpattern: Dynamic Snapshot (delete policy)] snapshottable-stress [Feature:VolumeSnapshotDataSource] should support [Slow] [Serial]": "snapshottable-stress",
		"[Testpattern: Dynamic PV (block volmode)(allowExpansion)] volume-expand Verify if offline PVC expansion works":                          "volume-expand",
	} {
		if got := (Spec{"thin", driver + text}).Group(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got := (Spec{"thin", "something else"}).Group(); got != "other" {
		t.Errorf("a text of another form: %q", got)
	}
}

// TestExclusionsHaveReasons: each exclusion has a unique name and a reason, and docs/development/conformance.md has both.
func TestExclusionsHaveReasons(t *testing.T) {
	page, err := os.ReadFile("../../docs/development/conformance.md")
	check.Must(t, err)
	seen := map[string]bool{}
	for _, e := range Exclusions {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(e.Specs) + `( \| \d+){3} \| ` + regexp.QuoteMeta(e.Reason) + ` \|$`)
		if !row.Match(page) {
			t.Errorf("the page has no row for %q with the reason %q", e.Specs, e.Reason)
		}
		key := e.Specs + e.Class
		if e.Specs == "" || e.Reason == "" || seen[key] || e.Class != "" && !slices.Contains(Classes, e.Class) {
			t.Errorf("%+v: want a name of its own, a reason, and a class that there is", e)
		}
		seen[key] = true
	}
}

func TestWhatIsClaimed(t *testing.T) {
	for text, claims := range map[string][]string{
		"[Testpattern: Dynamic PV (default fs)] provisioning should provision storage with mount options":                                       {"linear", "thin", "encrypted"},
		"[Testpattern: Dynamic PV (default fs)] provisioning should provision storage with pvc data source":                                     {"thin", "encrypted"},
		"[Testpattern: Dynamic PV (default fs)] provisioning should provision storage with pvc data source (ROX mode)":                          {"thin", "encrypted"},
		"[Testpattern: Dynamic Snapshot (delete policy)] snapshottable [Feature:VolumeSnapshotDataSource] volume snapshot controller should":    {"thin", "encrypted"},
		"[Testpattern: Dynamic PV (block volmode)] provisioning should provision storage with mount options":                                    nil,
		"[Testpattern: Dynamic PV (block volmode)] multiVolume [Slow] should access to two volumes with different volume mode on the same node": {"linear", "thin", "encrypted"},
		"[Testpattern: Dynamic PV (ext4)] multiVolume [Slow] should access to two volumes with different volume mode on the same node":          nil,
		"[Testpattern: Dynamic PV (ext4)] multiVolume [Slow] should concurrently access the volume and restored snapshot from pods on the same": {"thin", "encrypted"},
		"[Testpattern: Dynamic PV (ntfs)] [Feature:Windows] volumes should store data":                                                          nil,
		"[Testpattern: Inline-volume (default fs)] subPath should support existing directory":                                                   nil,
		"[Testpattern: Generic Ephemeral-volume (default fs) (late-binding)] ephemeral should create read/write inline ephemeral volume":        {"linear", "thin", "encrypted"},
		"[Testpattern: Generic Ephemeral-volume (default fs) (immediate-binding)] ephemeral should create read/write inline ephemeral volume":   nil,
		"[Testpattern: Dynamic PV (block volmode)] multiVolume [Slow] should concurrently access the single volume from pods on different node": nil,
		"[Testpattern: Dynamic PV (block volmode)] multiVolume [Slow] should concurrently access the single volume from pods on the same node":  {"linear", "thin", "encrypted"},
		"[Testpattern: Pre-provisioned VolumeGroupSnapshot (delete policy)] volumegroupsnapshottable [Feature:volumegroupsnapshot] should":      {"groups"},
		"[Testpattern: Dynamic PV (default fs)] read-write-once-pod should preempt lower priority pods using ReadWriteOncePod volumes [Serial]": {"linear", "thin", "encrypted"},
		"[Testpattern: Dynamic PV (default fs)] subPath should unmount if pod is force deleted while kubelet is down [Disruptive] [Slow]":       nil,
		"[Testpattern: Dynamic PV (block volmode)] volume-modify [Feature:VolumeAttributesClass] should create a volume with VAC":               {"linear", "thin", "encrypted"},
		"[Testpattern: Dynamic PV (filesystem volmode)] volumeMode should not mount / map unused volumes in a pod [LinuxOnly]":                  {"linear", "thin", "encrypted"},
	} {
		var got []string
		for _, class := range definitionNames() {
			if regexp.MustCompile(focusOf(class)).MatchString(driver+text) && exclusionOf(Spec{class, driver + text}) < 0 {
				got = append(got, class)
			}
		}
		if !slices.Equal(got, claims) {
			t.Errorf("%s: claimed for %v, want %v", text, got, claims)
		}
	}
}

// TestGroupsAreOnOneNode: the class groups names the node whose volume group has the extents that its specs need.
func TestGroupsAreOnOneNode(t *testing.T) {
	text, err := definitions.ReadFile("definitions/groups-class.yaml")
	check.Must(t, err)
	if want := "{key: topology.nodelvm.io/node, values: [" + GroupsNode + "]}"; !strings.Contains(string(text), want) {
		t.Errorf("groups-class.yaml lacks %s:\n%s", want, text)
	}
}

// TestWithoutNode: a node is selected only for a claim of the specs that start no pod, and only once.
func TestWithoutNode(t *testing.T) {
	claim := func(namespace, node string, phase corev1.PersistentVolumeClaimPhase, deleted bool) (c corev1.PersistentVolumeClaim) {
		c.Namespace, c.Name, c.Status.Phase = namespace, namespace+node, phase
		if now := metav1.Now(); deleted {
			c.DeletionTimestamp = &now
		}
		if node != "" {
			c.Annotations = map[string]string{selectedNode: node}
		}
		return c
	}
	got := withoutNode([]corev1.PersistentVolumeClaim{
		claim("volume-modify-stress-12", "", corev1.ClaimPending, false),
		claim("volume-modify-12", "", corev1.ClaimPending, false),
		claim("volume-modify-stress-12", "node-1", corev1.ClaimPending, false),
		claim("volume-modify-stress-12", "", corev1.ClaimBound, false),
		claim("volume-modify-stress-12", "", corev1.ClaimPending, true),
	})
	if len(got) != 1 || got[0].Name != "volume-modify-stress-12" {
		t.Errorf("%d claims get a node: %v", len(got), got)
	}
	text := driver + "[Testpattern: Dynamic PV (default fs)] volume-modify-stress [FeatureGate:VolumeAttributesClass] multiple pods should modify volumes"
	if got := (Spec{"thin", text}).Group(); got != podless {
		t.Errorf("the specs without pods are in the group %q", got)
	}
}

func TestShards(t *testing.T) {
	var specs []Spec
	for _, class := range Classes {
		specs = append(specs, Spec{class, driver + "[Testpattern: Dynamic PV (xfs)] volumes should store data [Serial]"})
		for i := range shardSize + 2 {
			specs = append(specs, Spec{class, driver + "[Testpattern: Dynamic PV (xfs)] volumes should hold (more) " + strings.Repeat("data ", i+1)})
		}
	}
	shards := makeShards(specs)
	names, total := map[string]bool{}, 0
	for i, s := range shards {
		if names[s.name] || len(s.specs) > shardSize {
			t.Errorf("%s: a name of its own and at most %d specs, has %d", s.name, shardSize, len(s.specs))
		}
		names[s.name] = true
		total += len(s.specs)
		if i > 0 && shards[i-1].serial && !s.serial {
			t.Errorf("%s comes after %s, which must run alone", s.name, shards[i-1].name)
		}
		focus := regexp.MustCompile(s.focus())
		for _, spec := range specs {
			if spec.Class != s.class() {
				continue
			}
			if want := slices.Contains(s.specs, spec); focus.MatchString("Kubernetes e2e suite "+spec.Text) != want {
				t.Errorf("%s finds %q: %v, want %v", s.name, spec.Text, !want, want)
			}
		}
	}
	if total != len(specs) || len(shards) != 3*len(Classes) {
		t.Errorf("%d specs in %d shards, want %d in %d", total, len(shards), len(specs), 3*len(Classes))
	}
}

func spec(text string, state types.SpecState, failure string) types.SpecReport {
	return types.SpecReport{
		LeafNodeType: types.NodeTypeIt, LeafNodeText: text, State: state,
		Failure: types.Failure{Message: failure}, CapturedGinkgoWriterOutput: "much",
	}
}

func TestResultsAreKept(t *testing.T) {
	a, b, c, d := Spec{"thin", "a"}, Spec{"thin", "b"}, Spec{"thin", "c"}, Spec{"thin", "d"}
	r := results{}
	r.take([]Spec{a, b, c, d}, types.Report{SpecReports: types.SpecReports{
		spec("a", types.SpecStatePassed, ""), spec("b", types.SpecStateFailed, "no volume"),
		spec("c", types.SpecStateSkipped, "not supported"), spec("d", types.SpecStateSkipped, ""), // d did not run
		spec("another shard's", types.SpecStateFailed, "whatever"),
	}})
	dir := t.TempDir()
	check.Must(t, r.save(dir))
	r, err := loadResults(dir)
	check.Must(t, err)
	if len(r) != 3 || !r.passed(a) || r.passed(b) || r.passed(c) || r.passed(d) {
		t.Errorf("kept %d results: %v", len(r), r)
	}
	if r[a].CapturedGinkgoWriterOutput != "" || r[b].CapturedGinkgoWriterOutput == "" {
		t.Error("what the suite printed is kept of what failed, only")
	}
	if want := (counts{claimed: 4, passed: 1, failed: 1, skipped: 1}); r.count([]Spec{a, b, c, d}) != want {
		t.Errorf("%+v, want %+v", r.count([]Spec{a, b, c, d}), want)
	}
	r.take([]Spec{b}, types.Report{SpecReports: types.SpecReports{spec("b", types.SpecStatePassed, "")}})
	if !r.passed(b) {
		t.Error("a later run's outcome does not replace the earlier one's")
	}
	check.Must(t, os.WriteFile(resultsFile(dir), []byte("[{"), 0o644))
	if _, err := loadResults(dir); err == nil {
		t.Error("half a file is taken for results")
	}
}

func TestNoResultsAtFirst(t *testing.T) {
	if r, err := loadResults(t.TempDir()); err != nil || len(r) != 0 {
		t.Errorf("%v, %v", r, err)
	}
}

func TestSummary(t *testing.T) {
	store := driver + "[Testpattern: Dynamic PV (ext4)] volumes should store data"
	exec := driver + "[Testpattern: Dynamic PV (ext4)] volumes should allow exec"
	s := Summary{
		Specs: []Spec{{"linear", store}, {"linear", exec}, {"thin", store}, {"thin", exec}, {"thin", driver + "[Testpattern: Dynamic PV (ntfs)] volumes should store data"}},
		results: results{
			{"linear", store}: spec(store, types.SpecStatePassed, ""),
			{"linear", exec}:  spec(exec, types.SpecStateFailed, "permission denied"),
			{"thin", store}:   spec(store, types.SpecStateSkipped, "Driver does not"),
		},
	}
	missing := s.NotPassed(s.Claimed())
	if len(missing) != 3 || !strings.Contains(missing[0], "permission denied") || !strings.Contains(missing[1], "Driver does not") || !strings.Contains(missing[2], "not run") {
		t.Errorf("not passed: %q", missing)
	}
	for _, row := range []string{"| linear | volumes | 2 | 1 | 1 | 0 | 0 |\n", "| thin | volumes | 2 | 0 | 0 | 1 | 1 |\n", "| all | all | 4 | 1 | 1 | 1 | 1 |\n"} {
		if !strings.Contains(s.Table(), row) {
			t.Errorf("the table lacks %s\n%s", row, s.Table())
		}
	}
	s.Specs = append(s.Specs, Spec{groups, driver + "[Testpattern:  (delete policy)] volumegroupsnapshottable should"})
	if got, want := s.Numbers(), "6 specs, of which nodelvm claims 5: 2 linear, 2 thin, 0 encrypted, 1 groups"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if row := "| other operating systems: ntfs | 0 | 1 | 0 | "; !strings.Contains(ExclusionTable(s.Specs), row) {
		t.Errorf("the table lacks %s\n%s", row, ExclusionTable(s.Specs))
	}
}
