package lvm

import (
	"context"
	"fmt"
	"strings"
)

// Preparation is the input of Prepare.
type Preparation struct {
	Declared          []Declaration
	DryRun            bool // report what Prepare would do, and change nothing
	RequireStableScan bool // add a device only if this Host's last scan also found it blank: for repeated scans
	Signatures        func(ctx context.Context, device string) (found []string, err error)
}

// PrepareReport reports what Prepare did, or would do.
type PrepareReport struct {
	Devices []DeviceReport // by path
	Groups  []GroupReport  // in the order of the declarations
}

// DeviceReport reports on one device of the node.
type DeviceReport struct {
	Path string
	Size Bytes
	Text string // what Prepare did with it, or why it ignored it
}

// GroupReport reports on one declared group.
type GroupReport struct {
	Name    VGName
	Text    string // what Prepare did, or the group's state; empty if Err is set
	Changed bool   // Prepare changed something, or would
	Err     error  // why it does not match its declaration
}

// String returns a line for each device and each group.
func (r PrepareReport) String() string {
	var b strings.Builder
	for _, d := range r.Devices {
		fmt.Fprintf(&b, "%s (%s): %s\n", d.Path, d.Size, d.Text)
	}
	for _, g := range r.Groups {
		text := g.Text
		if g.Err != nil {
			text = "ERROR: " + g.Err.Error()
		}
		fmt.Fprintf(&b, "volume group %s: %s\n", g.Name, text)
	}
	return b.String()
}

// Failed returns the groups that do not match their declaration.
func (r PrepareReport) Failed() (failed []GroupReport) {
	for _, g := range r.Groups {
		if g.Err != nil {
			failed = append(failed, g)
		}
	}
	return failed
}
