package bench

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Candidates, as in Key.Who.
const (
	Stock   = "stock"
	Tuned   = "tuned"
	Nodelvm = "nodelvm"
)

// Units of a sample's figures, as in Go's benchmark format.
const (
	unitTime      = "ns/op"
	unitProcesses = "lvm/op"       // LVM processes before the answer
	unitInLVM     = "lvm-ns/op"    // time in them
	unitLater     = "later-ns/op"  // time in LVM processes after the answer
	unitLaterLVM  = "later-lvm/op" // their number
	unitMemory    = "RSS-bytes"
	unitWorst     = "worst-ns/op" // the slowest of several requests
)

// Key names what was measured.
type Key struct {
	Work    string // "CreateVolume"
	Volumes int    // number in the group before the work
	AtOnce  int    // number of concurrent requests
	Who     string
}

// Sample is one measurement: figures by unit.
type Sample struct {
	Key
	Figures map[string]float64
}

// units is the order of the figures in a line.
var units = []string{unitTime, unitWorst, unitProcesses, unitInLVM, unitLater, unitLaterLVM, unitMemory}

// write prints the sample as a line of Go's benchmark format.
func (s Sample) write(out io.Writer) error {
	line := fmt.Sprintf("Benchmark%s/volumes=%d/atonce=%d/by=%s 1", s.Work, s.Volumes, s.AtOnce, s.Who)
	for _, unit := range units {
		if v, ok := s.Figures[unit]; ok {
			line += fmt.Sprintf(" %.0f %s", v, unit)
		}
	}
	_, err := fmt.Fprintln(out, line)
	return err
}

// Run is the result of one run of Measure.
type Run struct {
	Facts   map[string]string // configuration lines, "key: value"
	Samples []Sample
}

// Read parses the output of Measure.
func Read(in io.Reader) (Run, error) {
	run := Run{Facts: map[string]string{}}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "Benchmark") {
			s, err := readSample(line)
			if err != nil {
				return run, fmt.Errorf("line %q: %w", line, err)
			}
			run.Samples = append(run.Samples, s)
		} else if key, value, ok := strings.Cut(line, ": "); ok {
			run.Facts[key] = value
		}
	}
	return run, lines.Err()
}

func readSample(line string) (Sample, error) {
	s := Sample{Figures: map[string]float64{}}
	fields := strings.Fields(line)
	name := strings.Split(strings.TrimPrefix(fields[0], "Benchmark"), "/")
	if len(name) != 4 || len(fields) < 4 || len(fields)%2 != 0 {
		return s, fmt.Errorf("it is no sample of this benchmark")
	}
	s.Work = name[0]
	for _, part := range name[1:] {
		key, value, _ := strings.Cut(part, "=")
		var err error
		switch key {
		case "volumes":
			s.Volumes, err = strconv.Atoi(value)
		case "atonce":
			s.AtOnce, err = strconv.Atoi(value)
		case "by":
			s.Who = value
		default:
			err = fmt.Errorf("%q is not known", part)
		}
		if err != nil {
			return s, err
		}
	}
	for i := 2; i < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return s, err
		}
		s.Figures[fields[i+1]] = v
	}
	return s, nil
}

// Median returns the median of one figure over all samples of a key; ok is false if there is none.
func (r Run) Median(key Key, unit string) (median float64, ok bool) {
	var all []float64
	for _, s := range r.Samples {
		if v, there := s.Figures[unit]; s.Key == key && there {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2, true
}
