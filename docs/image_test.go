package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestImageIsNamed: no image of the driver is published, so each command and each object of a page that installs the chart names the reader's own,
// or the values of a page that do. helm template without a cluster needs the version of Kubernetes: the chart refuses an older one.
func TestImageIsNamed(t *testing.T) {
	installs, templates, objects := 0, 0, 0
	for _, page := range files(t, ".md") {
		content, err := os.ReadFile(page)
		must(t, err)
		text := strings.ReplaceAll(string(content), "\\\n", " ")
		for _, command := range regexp.MustCompile(`helm (install|upgrade|template) nodelvm .*`).FindAllStringSubmatch(text, -1) {
			if command[1] == "template" {
				templates++
				if !strings.Contains(command[0], "--kube-version ") {
					t.Errorf("%s: without --kube-version, Helm refuses the chart: %s", page, command[0])
				}
				continue
			}
			installs++
			if !strings.Contains(command[0], "--values values.yaml") && !strings.Contains(command[0], "--set image.repository=") {
				t.Errorf("%s: no image is published under the chart's default: %s", page, command[0])
			}
		}
		for _, block := range regexp.MustCompile("(?s)(<!-- file values.yaml -->\n)?```yaml\n(.*?)\n```").FindAllStringSubmatch(text, -1) {
			if block[1] == "" && !regexp.MustCompile(`(?m)^kind: (Application|HelmRelease)$`).MatchString(block[2]) {
				continue
			}
			objects++
			if !regexp.MustCompile(`(?m)\brepository: |^imageRegistry: `).MatchString(block[2]) {
				t.Errorf("%s: these values name no image, and none is published under the chart's default:\n%s", page, block[2])
			}
		}
	}
	if installs < 4 || templates < 2 || objects < 4 {
		t.Errorf("found %d commands that install the chart, %d that render it, %d values of whole pages", installs, templates, objects)
	}
}
