package scenario

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

var imageTags = regexp.MustCompile(`e2e-test-images/busybox:([0-9][0-9A-Za-z.-]+)`)

// TestImagesOfPods: each pod asks for the busybox image that the lab builds, at the version of versions.env. The lab reaches no registry: a pod with another tag
// waits for its image until the scenario's time is over.
func TestImagesOfPods(t *testing.T) {
	versions, err := os.ReadFile("../../versions.env")
	check.Must(t, err)
	built := regexp.MustCompile(`(?m)^BUSYBOX_VERSION=(.+)$`).FindSubmatch(versions)
	if built == nil {
		t.Fatal("versions.env has no BUSYBOX_VERSION")
	}
	checked := 0
	for _, pattern := range []string{"manifests/*.yaml", "*/*.go", "*.go"} {
		files, err := filepath.Glob(pattern)
		check.Must(t, err)
		for _, path := range files {
			text, err := os.ReadFile(path)
			check.Must(t, err)
			for _, tag := range imageTags.FindAllSubmatch(text, -1) {
				checked++
				if string(tag[1]) != string(built[1]) {
					t.Errorf("%s asks for busybox:%s, and the lab has %s", path, tag[1], built[1])
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no pod has the image: nothing was checked")
	}
}
