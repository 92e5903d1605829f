package bench

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// TestSamplesSurviveTheFormat: Read returns the samples that write wrote.
func TestSamplesSurviveTheFormat(t *testing.T) {
	want := []Sample{
		{Key{"CreateVolume", 100, 1, Nodelvm}, map[string]float64{unitTime: 2e8, unitProcesses: 1, unitLater: 15e7, unitLaterLVM: 1}},
		{Key{"Memory", 1000, 1, Nodelvm}, map[string]float64{unitMemory: 2 << 20}},
	}
	var text strings.Builder
	text.WriteString("lvm-stock: 2.03.16(2)\n")
	for _, s := range want {
		check.Must(t, s.write(&text))
	}
	run, err := Read(strings.NewReader(text.String()))
	check.Must(t, err)
	if !reflect.DeepEqual(run.Samples, want) || run.Facts["lvm-stock"] != "2.03.16(2)" {
		t.Errorf("written:\n%s\nread: %+v", text.String(), run)
	}
}

func TestDamagedSamplesAreRefused(t *testing.T) {
	for _, line := range []string{
		"BenchmarkCreateVolume 1 5 ns/op",
		"BenchmarkCreateVolume/volumes=x/atonce=1/by=stock 1 5 ns/op",
		"BenchmarkCreateVolume/volumes=0/atonce=1/by=stock 1 five ns/op",
		"BenchmarkCreateVolume/volumes=0/atonce=1/by=stock 1 5",
		"BenchmarkCreateVolume/size=0/atonce=1/by=stock 1 5 ns/op",
	} {
		if run, err := Read(strings.NewReader(line)); err == nil {
			t.Errorf("%q is read as %+v", line, run.Samples)
		}
	}
}

func TestMedian(t *testing.T) {
	key := Key{"CreateVolume", 0, 1, Stock}
	run := Run{}
	for _, v := range []float64{9, 1, 4, 2} {
		run.Samples = append(run.Samples, Sample{key, map[string]float64{unitTime: v}})
	}
	run.Samples = append(run.Samples, Sample{Key{"CreateVolume", 0, 1, Tuned}, map[string]float64{unitTime: 100}})
	if median, ok := run.Median(key, unitTime); median != 3 || !ok {
		t.Errorf("the median of 9, 1, 4, 2 is %v, %v", median, ok)
	}
	if median, ok := run.Median(key, unitMemory); ok {
		t.Errorf("a figure that nobody took is %v", median)
	}
}

// TestTable: Table renders a complete run, and fails for one that lacks a sample.
func TestTable(t *testing.T) {
	run := Run{Facts: map[string]string{"lvm-stock": "2.03.16", "lvm-image": "2.03.31", "kernel": "Linux"}}
	add := func(work string, volumes, atOnce int, who string, figures map[string]float64) {
		run.Samples = append(run.Samples, Sample{Key{work, volumes, atOnce, who}, figures})
	}
	for _, volumes := range fillings {
		for _, w := range works {
			add(w.work, volumes, 1, Stock, map[string]float64{unitTime: 200e6, unitProcesses: 1})
			add(w.work, volumes, 1, Tuned, map[string]float64{unitTime: 180e6, unitProcesses: 1})
			add(w.work, volumes, 1, Nodelvm, map[string]float64{unitTime: 150e6, unitProcesses: 1, unitInLVM: 90e6, unitLater: 120e6, unitLaterLVM: 1})
		}
		add("Memory", volumes, 1, Nodelvm, map[string]float64{unitMemory: 20 * mebibyte})
	}
	for _, p := range publishers {
		add(publishing, 0, 1, p.who, map[string]float64{unitTime: 4e6, unitProcesses: 0})
	}
	for _, n := range burstSizes {
		add("CreateBurst", 0, n, Stock, map[string]float64{unitTime: 4e9, unitWorst: 4e9, unitProcesses: float64(n)})
		add("CreateBurst", 0, n, Nodelvm, map[string]float64{unitTime: 3e9, unitWorst: 2e9, unitProcesses: float64(n), unitLater: 1e9, unitLaterLVM: 2})
		add("GetCapacityMeanwhile", 0, n, Nodelvm, map[string]float64{unitTime: 2e6})
	}
	table, err := Table(run)
	check.Must(t, err)
	for _, row := range []string{
		"| CreateVolume, linear (`lvcreate`) | 0 | 200 | 180 | 150 | 0.75 | 0.83 | 1, 90 ms | 1, 120 ms |",
		"| 32 | 4000 | 3000 | 0.75 | 2000 | 32 | 2, 1000 ms | 2.0, 2.0 |",
		"| with I/O limits; the volume has no class | 0 | 4.0 | 1.00 |",
		"| 1000 | 20.0 |",
	} {
		if !strings.Contains(table, row+"\n") {
			t.Errorf("there is no row %q in\n%s", row, table)
		}
	}
	page, err := os.ReadFile("results.md")
	check.Must(t, err)
	for line := range strings.SplitSeq(table, "\n") {
		title, _, _ := strings.Cut(line, " | 0 |")
		if heading := strings.HasPrefix(line, "#") || strings.HasPrefix(line, "| ") && !strings.ContainsAny(line, "0123456789"); heading || title != line {
			if !strings.Contains(string(page), "\n"+title) {
				t.Errorf("test/bench/results.md lacks %q", title)
			}
		}
	}
	run.Samples = run.Samples[1:]
	if _, err := Table(run); err == nil || !strings.Contains(err.Error(), "CreateVolume by stock with 0 volumes") {
		t.Errorf("a hole in the run: %v", err)
	}
}

func TestInsert(t *testing.T) {
	document := "before\n" + tableBegins + "old\n" + tableEnds + "after\n"
	want := "before\n" + tableBegins + "\nnew\n" + tableEnds + "after\n"
	if got, err := Insert(document, "new"); err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Insert("no marks", "new"); err == nil {
		t.Error("a document without the marks was taken")
	}
}
