package lab

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// EnvFeatureGates is the variable with feature gates of the API server and the kubelets, such as "CSIVolumeHealth=true"; without it, they
// have those of their version.
const EnvFeatureGates = "NODELVM_FEATURE_GATES"

// featureGates are feature gates of Kubernetes that differ from its defaults.
type featureGates map[string]bool

var featureGate = regexp.MustCompile(`^([A-Z][A-Za-z0-9]*)=(true|false)$`)

// parseFeatureGates reads the form of Kubernetes' flag --feature-gates.
func parseFeatureGates(text string) (featureGates, error) {
	gates := featureGates{}
	if text == "" {
		return gates, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		m := featureGate.FindStringSubmatch(one)
		if m == nil {
			return nil, fmt.Errorf("%s is %q; set it to feature gates such as CSIVolumeHealth=true", EnvFeatureGates, text)
		}
		gates[m[1]] = m[2] == "true"
	}
	return gates, nil
}

// flags returns the API server's flag for the gates; none without gates.
func (g featureGates) flags() []string {
	if len(g) == 0 {
		return nil
	}
	return []string{"--feature-gates=" + g.join("=", ",")}
}

// yaml returns the value of the field featureGates in a kubelet's configuration.
func (g featureGates) yaml() string { return "{" + g.join(": ", ", ") + "}" }

func (g featureGates) join(equals, between string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(g)) {
		all = append(all, name+equals+strconv.FormatBool(g[name]))
	}
	return strings.Join(all, between)
}
