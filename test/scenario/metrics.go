package scenario

import (
	"fmt"
	"strconv"
	"strings"
)

// EachSample calls do for each sample of Prometheus' text format, with the labels as between the braces. It fails at a value that is
// no number.
func EachSample(text string, do func(name, labels string, value float64)) error {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		space := strings.LastIndexByte(line, ' ')
		if space < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		value, err := strconv.ParseFloat(line[space+1:], 64)
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		name, labels, _ := strings.Cut(line[:space], "{")
		do(name, strings.TrimSuffix(labels, "}"), value)
	}
	return nil
}

// MetricLabel returns the value of a label, from the labels of one sample.
func MetricLabel(labels, name string) string {
	_, rest, _ := strings.Cut(labels, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
