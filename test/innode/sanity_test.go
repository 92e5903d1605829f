//go:build innode

package innode

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
)

// sanityClasses are the StorageClasses that csi-sanity is run with.
var sanityClasses = map[string]map[string]string{
	"linear": {"volumeGroup": "@fast"},
	"thin":   {"volumeGroup": "vg-a", "layout": "thin", "overprovisionRatio": "4"},
	"raid1":  {"volumeGroup": "vg-r", "layout": "raid1"},

	"encrypted": {"volumeGroup": "vg-a", "layout": "thin", "overprovisionRatio": "4", "encryption": "luks2"},
}

// sanitySecrets is what the kubelet would pass, for all volumes of a suite. csi-sanity passes none to NodeExpandVolume.
const sanitySecrets = "NodeStageVolumeSecret:\n  key: 0123456789abcdefGHIJKLMNOPqrstuv\n"

// What this driver does not claim, in the words of the specs that skip for want of it; and those that skip for the thick
// layouts, which have no snapshots. Only these may skip.
var notClaimed = []string{
	"ControllerPublishVolume", "Controller Publish", "ControllerUnpublishVolume", "ModifyVolume", "Modify volume", "Modify Volume",
}

// sanitySuites are the classes, each with file systems and with raw devices. The Controller's specs do not depend on the device,
// so each class runs them with one kind of device, and with the other kind only the specs that use a volume on the node.
var sanitySuites = []struct {
	class, accessType string
	onlyNode          bool
}{
	{class: "linear", accessType: "mount"}, {class: "linear", accessType: "block", onlyNode: true},
	{class: "raid1", accessType: "mount", onlyNode: true}, {class: "raid1", accessType: "block"},
	{class: "thin", accessType: "mount"}, {class: "thin", accessType: "block", onlyNode: true},
	{class: "encrypted", accessType: "mount"}, {class: "encrypted", accessType: "block", onlyNode: true},
}

// nodeSpecs are the specs that stage, publish or expand a volume.
var nodeSpecs = []string{`Node Service`, `Node Expand|NodeExpandVolume`}

// TestSanity runs csi-sanity for each suite. ginkgo allows one suite a process, so each is this program once more, against the
// same driver.
func TestSanity(t *testing.T) {
	for _, suite := range sanitySuites {
		t.Run(suite.class+", "+suite.accessType, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSanitySuite$", "-test.v")
			cmd.Env = append(os.Environ(), sanityClass+"="+suite.class, sanityAccess+"="+suite.accessType, fmt.Sprintf("%s=%t", sanityOnlyNode, suite.onlyNode))
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Error(err)
			}
			eventually(t, 2*time.Minute, "all that csi-sanity made is gone", func() bool { return len(volumes(t)) == 0 })
		})
	}
}

// In a child of TestSanity these say which suite to run; elsewhere they are not set.
const (
	sanityClass    = "NODELVM_SANITY_CLASS"
	sanityAccess   = "NODELVM_SANITY_ACCESS"
	sanityOnlyNode = "NODELVM_SANITY_ONLY_NODE"
)

func TestSanitySuite(t *testing.T) {
	class, accessType := os.Getenv(sanityClass), os.Getenv(sanityAccess)
	if class == "" {
		return // TestSanity runs it
	}
	var parameters strings.Builder
	for key, value := range sanityClasses[class] {
		fmt.Fprintf(&parameters, "%s: %q\n", key, value)
	}
	path, secrets := filepath.Join(t.TempDir(), "parameters.yaml"), filepath.Join(t.TempDir(), "secrets.yaml")
	must(t, errors.Join(os.WriteFile(path, []byte(parameters.String()), 0o600), os.WriteFile(secrets, []byte(sanitySecrets), 0o600)))
	config := sanity.NewTestConfig()
	config.Address = endpoint
	config.TestVolumeAccessType = accessType
	config.TestVolumeSize = 32 * mebibyte
	config.TestVolumeExpandSize = 48 * mebibyte
	config.TestVolumeParametersFile = path
	config.SecretsFile = secrets
	config.IdempotentCount = 3 // what holds the third time holds the tenth
	config.TargetPath = filepath.Join(work, "sanity-target")
	config.StagingPath = filepath.Join(work, "sanity-staging")
	report := filepath.Join(t.TempDir(), "report.json")

	sc := sanity.GinkgoTest(&config)
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.JSONReport = report
	reporter.Succinct = true
	suite.SkipStrings = []string{wrongSpec}
	if sanityClasses[class]["layout"] != "thin" {
		suite.SkipStrings = append(suite.SkipStrings, thinOnly...)
	}
	least := 50
	if os.Getenv(sanityOnlyNode) == "true" {
		suite.FocusStrings, least = nodeSpecs, 15
	}
	ginkgo.RunSpecs(t, "csi-sanity, "+class+", "+accessType, suite, reporter)
	sc.Finalize()
	checkReport(t, report, least)
}

// wrongSpec compares two protobuf messages with reflect.DeepEqual, and so their cached sizes, which differ once one was sent: no driver that
// answers with a topology passes it. TestSnapshotTopology of package controller proves the same.
const wrongSpec = "should succeed when creating a snapshot with accessibility requirements"

// thinOnly are the specs that need a class with snapshots.
var thinOnly = []string{
	`ListSnapshots \[Controller Server\] should return snapshots that match`, `ListSnapshots \[Controller Server\] check the presence`,
	`ListSnapshots \[Controller Server\] should return next token`, `GetSnapshot \[Controller Server\] should return snapshot that match`,
	`DeleteSnapshot \[Controller Server\] should return appropriate values`, `CreateSnapshot \[Controller Server\] should (succeed|fail) when (requesting|creating)`,
	"should create volume from an existing source (snapshot|volume)",
}

// checkReport counts the specs, of which at least so many must pass, and demands a good reason for each one that was skipped.
func checkReport(t *testing.T, path string, least int) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	var reports []types.Report
	must(t, json.Unmarshal(text, &reports))
	count, filtered := map[types.SpecState]int{}, 0
	for _, spec := range reports[0].SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		count[spec.State]++
		switch {
		case spec.State != types.SpecStateSkipped:
		case spec.Failure.Message == "": // by thinOnly or nodeSpecs
			filtered++
		case !excused(spec):
			t.Errorf("skipped without a good reason: %s: %s", spec.FullText(), spec.Failure.Message)
		}
	}
	t.Logf("csi-sanity: %d passed, %d failed, %d skipped for want of a capability that is not claimed, %d left to another class or device, %d pending upstream",
		count[types.SpecStatePassed], count[types.SpecStateFailed], count[types.SpecStateSkipped]-filtered, filtered, count[types.SpecStatePending])
	if count[types.SpecStatePassed] < least {
		t.Errorf("only %d specs passed: the suite did not run as it should", count[types.SpecStatePassed])
	}
}

func excused(spec types.SpecReport) bool {
	for _, words := range notClaimed {
		if strings.Contains(spec.FullText(), words) || strings.Contains(spec.Failure.Message, words) {
			return true
		}
	}
	return false
}
