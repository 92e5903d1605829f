package bench

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// TestMultiply uses the vgcfgbackup of a group with one volume of the driver.
func TestMultiply(t *testing.T) {
	text, err := os.ReadFile("testdata/group.txt")
	check.Must(t, err)
	filled, err := multiply(string(text), 1000)
	check.Must(t, err)
	for what, pattern := range map[string]string{
		"UUID":   `id = "([^"]+)"`,
		"name":   `(?m)^\t\t(pvc-\S+) \{$`,
		"extent": `"pv0", (\d+)`,
	} {
		var all []string
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(filled, -1) {
			all = append(all, match[1])
		}
		slices.Sort(all)
		if distinct := len(slices.Compact(slices.Clone(all))); distinct != len(all) || distinct < 1000 {
			t.Errorf("%d volumes were asked for; of %d %ss, %d differ", 1000, len(all), what, distinct)
		}
	}
	if _, err := multiply("", 10); err == nil {
		t.Error("a text without a volume was multiplied")
	}
}
