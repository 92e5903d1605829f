package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// TestMetricsReference: docs/reference/metrics.md lists what a driver registers, with its labels, and nothing else.
func TestMetricsReference(t *testing.T) {
	r := run(t, newNode())
	defer r.stop()
	page := read(t, "../../docs/reference/metrics.md")
	var told []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|([^|]*)\\|").FindAllStringSubmatch(page, -1) {
		labels := strings.FieldsFunc(row[2], func(c rune) bool { return strings.ContainsRune(" ,`", c) })
		slices.Sort(labels)
		told = append(told, row[1]+" "+strings.Join(labels, ","))
	}
	slices.Sort(told)
	if registered := registeredBy(r.registry); !slices.Equal(told, registered) {
		t.Errorf("docs/reference/metrics.md and what the driver registers (+) differ:\n%s", differences(registered, told))
	}
}

// differences lists what only got (+) and only want (-) has.
func differences(got, want []string) string {
	var lines []string
	for _, line := range got {
		if !slices.Contains(want, line) {
			lines = append(lines, "+ "+line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			lines = append(lines, "- "+line)
		}
	}
	return strings.Join(lines, "\n")
}

// description is how client_golang prints what a metric is called and which labels it has.
var description = regexp.MustCompile(`fqName: "([^"]*)".*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

// registeredBy lists the driver's own metrics in a registry: "name label,label", sorted.
func registeredBy(registry *prometheus.Registry) []string {
	descs := make(chan *prometheus.Desc)
	go func() { registry.Describe(descs); close(descs) }()
	var all []string
	for desc := range descs {
		found := description.FindStringSubmatch(desc.String())
		if found == nil || strings.HasPrefix(found[1], "go_") || strings.HasPrefix(found[1], "process_") {
			continue
		}
		var labels []string
		for _, constant := range strings.FieldsFunc(found[2], func(c rune) bool { return c == ',' }) {
			name, _, _ := strings.Cut(constant, "=")
			labels = append(labels, name)
		}
		labels = append(labels, strings.FieldsFunc(found[3], func(c rune) bool { return c == ',' })...)
		slices.Sort(labels)
		all = append(all, found[1]+" "+strings.Join(labels, ","))
	}
	slices.Sort(all)
	return all
}

// TestMetricNames holds the driver's metrics to Prometheus' conventions.
func TestMetricNames(t *testing.T) {
	r := run(t, newNode())
	defer r.stop()
	families, err := r.registry.Gather()
	must(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(families) == 0 {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
