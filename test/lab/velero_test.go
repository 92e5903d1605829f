package lab

import (
	"strings"
	"testing"
)

// TestVeleroModule: the versions are those of versions.env, and a replaced module keeps the path that replaces it.
func TestVeleroModule(t *testing.T) {
	v, _, err := loadVersions()
	must(t, err)
	must(t, v.need("VELERO_VERSION", "VELERO_PLUGIN_VERSION", "VERSITYGW_VERSION"))
	m := veleroModule(v)
	text := renderGoMod(m, m.guests, m.replace)
	for _, want := range []string{
		"require github.com/vmware-tanzu/velero " + v["VELERO_VERSION"] + "\n",
		"require github.com/vmware-tanzu/velero-plugin-for-aws " + v["VELERO_PLUGIN_VERSION"] + "\n",
		"replace github.com/kopia/kopia => github.com/project-velero/kopia v0.0.0-20251230033609-d946b1e75197\n",
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("go.mod lacks %q:\n%s", want, text)
		}
	}
}
