package prose

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// Alert is what Vale has found at one place of a source.
type Alert struct {
	Path     string
	Line     int
	Check    string
	Message  string
	Severity string
}

func (a Alert) String() string {
	return fmt.Sprintf("%s:%d: %s: %s (%s)", a.Path, a.Line, a.Severity, a.Message, a.Check)
}

// Check has Vale, the program at this path, read the pages, the Go code and the copies, and returns what it found, in order.
func Check(ctx context.Context, root, vale string, files []string) ([]Alert, error) {
	command := exec.CommandContext(ctx, vale, append([]string{"--no-global", "--no-exit", "--output=JSON"}, files...)...)
	command.Dir = root
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s%s", err, output, problems.Bytes())
	}
	return alerts(output)
}

func alerts(output []byte) ([]Alert, error) {
	byFile := map[string][]Alert{}
	if err := json.Unmarshal(output, &byFile); err != nil {
		return nil, fmt.Errorf("cannot parse Vale's output: %w: %.200s", err, output)
	}
	var all []Alert
	for path, found := range byFile {
		if source, ok := strings.CutPrefix(path, Folder+"/"); ok {
			path = strings.TrimSuffix(source, ".md")
		}
		for _, alert := range found {
			alert.Path = path
			alert.Message = strings.ReplaceAll(alert.Message, "|", " or ")
			all = append(all, alert)
		}
	}
	slices.SortFunc(all, func(a, b Alert) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Check, b.Check))
	})
	return all, nil
}
