//go:build innode

package innode

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
)

// Services and capabilities that this version does not claim. Only specs that skip for want of one of these may skip.
var notClaimed = []string{
	"Controller Publish", "ControllerPublishVolume", "ControllerUnpublishVolume", "Snapshot", "snapshot", "ExpandVolume", "expand", "Expand", "cloning", "Cloning",
	"ControllerGetVolume", "ModifyVolume", "Modify volume", "Modify Volume", "Health", "health", "GroupController", "VolumeGroup", "condition",
}

// TestSanity runs csi-sanity once: ginkgo allows one suite a process, so the access type comes from outside.
func TestSanity(t *testing.T) {
	accessType := os.Getenv("SANITY_ACCESS_TYPE")
	if accessType == "" {
		accessType = "mount"
	}
	parameters := filepath.Join(t.TempDir(), "parameters.yaml")
	if err := os.WriteFile(parameters, []byte("volumeGroup: \"@fast\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := sanity.NewTestConfig()
	config.Address = endpoint
	config.TestVolumeAccessType = accessType
	config.TestVolumeSize = 64 * mebibyte
	config.TestVolumeParametersFile = parameters
	config.TargetPath = filepath.Join(work, "sanity-target")
	config.StagingPath = filepath.Join(work, "sanity-staging")
	report := filepath.Join(t.TempDir(), "report.json")

	sc := sanity.GinkgoTest(&config)
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.JSONReport = report
	reporter.Succinct = true
	ginkgo.RunSpecs(t, "csi-sanity, "+accessType, suite, reporter)
	sc.Finalize()
	checkReport(t, report)
}

// checkReport counts the specs and demands a good reason for each one that was skipped.
func checkReport(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var reports []types.Report
	if err := json.Unmarshal(text, &reports); err != nil {
		t.Fatal(err)
	}
	count := map[types.SpecState]int{}
	for _, spec := range reports[0].SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		count[spec.State]++
		if spec.State == types.SpecStateSkipped && !excused(spec) {
			t.Errorf("skipped without a good reason: %s: %s", spec.FullText(), spec.Failure.Message)
		}
	}
	t.Logf("csi-sanity: %d passed, %d failed, %d skipped for want of a capability that is not claimed, %d pending upstream",
		count[types.SpecStatePassed], count[types.SpecStateFailed], count[types.SpecStateSkipped], count[types.SpecStatePending])
	if count[types.SpecStatePassed] < 30 {
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
