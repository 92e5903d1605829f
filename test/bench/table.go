package bench

import (
	"fmt"
	"slices"
	"strings"
)

// works are the rows of the table of single requests, each with the bare command that it is compared with.
var works = []struct{ work, says, command string }{
	{"CreateVolume", "CreateVolume, linear", "lvcreate"},
	{"CreateVolumeAgain", "CreateVolume, repeated", ""},
	{"ControllerExpandVolume", "ControllerExpandVolume", "lvextend"},
	{"DeleteVolume", "DeleteVolume", "lvremove"},
	{"ListVolumes", "ListVolumes", "lvs"},
	{"GetCapacity", "GetCapacity", "vgs"},
	{"GetCapacityAlone", "GetCapacity, uncached", ""},
	{"GetPluginInfo", "GetPluginInfo (gRPC alone)", ""},
	{"Metrics", "GET /metrics", ""},
	{"CreateThinVolume", "CreateVolume, thin", "lvcreate -V"},
	{"CreateSnapshot", "CreateSnapshot", "lvcreate -s"},
	{"DeleteSnapshot", "DeleteSnapshot", "lvremove"},
	{"DeleteThinVolume", "DeleteVolume, thin", "lvremove"},
}

// Table renders the run for test/bench/results.md. It fails if the run lacks a figure, which an incomplete table would hide.
func Table(run Run) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured with LVM %s (stock, the node's) and LVM %s (tuned and nodelvm, the image's), on %s.\n\n",
		run.Facts["lvm-stock"], run.Facts["lvm-image"], run.Facts["kernel"])
	t := tables{run: run, out: &b}
	t.single()
	t.bursts()
	t.publishes()
	t.memory()
	if len(t.missing) > 0 {
		return "", fmt.Errorf("the run has no sample of %s", strings.Join(t.missing, ", "))
	}
	return b.String(), nil
}

type tables struct {
	run     Run
	out     *strings.Builder
	missing []string
}

// median returns a figure, and records it as missing if the run lacks it.
func (t *tables) median(key Key, unit string) float64 {
	v, ok := t.run.Median(key, unit)
	if !ok {
		t.missing = append(t.missing, fmt.Sprintf("%s of %s by %s with %d volumes, %d at once", unit, key.Work, key.Who, key.Volumes, key.AtOnce))
	}
	return v
}

func (t *tables) time(key Key) string { return milliseconds(t.median(key, unitTime)) }

// before and later describe the driver's work until its answer and after it: the number of LVM processes and their time.
func (t *tables) before(key Key) string { return t.inLVM(key, unitProcesses, unitInLVM) }

func (t *tables) later(key Key) string { return t.inLVM(key, unitLaterLVM, unitLater) }

func (t *tables) inLVM(key Key, processes, took string) string {
	n, ok := t.run.Median(key, processes)
	if !ok || n == 0 {
		return "0"
	}
	return fmt.Sprintf("%.4g, %s ms", n, milliseconds(t.median(key, took)))
}

func milliseconds(ns float64) string {
	ms := ns / 1e6
	if ms < 10 {
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}

func (t *tables) single() {
	fmt.Fprint(t.out, "### One request at a time\n\n",
		"| request (bare command) | volumes in the group | stock, ms | tuned, ms | nodelvm, ms | nodelvm / stock | nodelvm / tuned | of it in LVM processes | after the answer |\n",
		"|---|---|---|---|---|---|---|---|---|\n")
	for _, w := range works {
		for i, volumes := range fillings {
			title := ""
			if i == 0 {
				title = w.says
				if w.command != "" {
					title += " (`" + w.command + "`)"
				}
			}
			key := Key{w.work, volumes, 1, Nodelvm}
			stock, tuned, ratio, tunedRatio := "", "", "", ""
			if w.command != "" {
				bare, bareTuned := key, key
				bare.Who, bareTuned.Who = Stock, Tuned
				stock, tuned = t.time(bare), t.time(bareTuned)
				ratio = fmt.Sprintf("%.2f", t.median(key, unitTime)/t.median(bare, unitTime))
				tunedRatio = fmt.Sprintf("%.2f", t.median(key, unitTime)/t.median(bareTuned, unitTime))
			}
			fmt.Fprintf(t.out, "| %s | %d | %s | %s | %s | %s | %s | %s | %s |\n",
				title, volumes, stock, tuned, t.time(key), ratio, tunedRatio, t.before(key), t.later(key))
		}
	}
}

func (t *tables) bursts() {
	fmt.Fprint(t.out, "\n### Concurrent CreateVolume requests\n\n",
		"| requests | stock: all exist after, ms | nodelvm: all exist after, ms | nodelvm / stock | slowest answer, ms | LVM processes | after the answers | GetCapacity meanwhile, ms: median, worst |\n",
		"|---|---|---|---|---|---|---|---|\n")
	for _, n := range burstSizes {
		stock, ours := Key{"CreateBurst", 0, n, Stock}, Key{"CreateBurst", 0, n, Nodelvm}
		asked := Key{"GetCapacityMeanwhile", 0, n, Nodelvm}
		fmt.Fprintf(t.out, "| %d | %s | %s | %.2f | %s | %.4g | %s | %s, %s |\n", n, t.time(stock), t.time(ours),
			t.median(ours, unitTime)/t.median(stock, unitTime), milliseconds(t.median(ours, unitWorst)),
			t.median(ours, unitProcesses), t.later(ours), t.time(asked), milliseconds(t.run.worst(asked)))
	}
}

func (r Run) worst(key Key) float64 {
	var all []float64
	for _, s := range r.Samples {
		if s.Key == key {
			all = append(all, s.Figures[unitTime])
		}
	}
	if len(all) == 0 {
		return 0
	}
	return slices.Max(all)
}

func (t *tables) memory() {
	fmt.Fprint(t.out, "\n### Memory\n\n| volumes in the group | resident memory after these requests, MiB |\n|---|---|\n")
	for _, volumes := range fillings {
		fmt.Fprintf(t.out, "| %d | %.1f |\n", volumes, t.median(Key{"Memory", volumes, 1, Nodelvm}, unitMemory)/mebibyte)
	}
}

// The document has the table between these lines.
const (
	tableBegins = "<!-- make bench writes from here -->\n"
	tableEnds   = "<!-- to here -->\n"
)

// Insert replaces the table in a document.
func Insert(document, table string) (string, error) {
	head, rest, begins := strings.Cut(document, tableBegins)
	_, tail, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return "", fmt.Errorf("the document has no pair of lines %q and %q", tableBegins, tableEnds)
	}
	return head + tableBegins + "\n" + table + "\n" + tableEnds + tail, nil
}
