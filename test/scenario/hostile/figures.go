package hostile

import (
	"fmt"
	"slices"
	"time"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// medianOf returns the median time of a part.
func medianOf(rounds []round, part int) time.Duration {
	if len(rounds) == 0 {
		return 0
	}
	sorted := timesOf(rounds, part)
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func timesOf(rounds []round, part int) (times []time.Duration) {
	for _, r := range rounds {
		times = append(times, r[part])
	}
	slices.Sort(times)
	return times
}

// show prints the figures.
func (a *attack) show(env *scenario.Environment, k *killer) {
	if len(a.normal) == 0 || len(a.under) == 0 {
		return
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
	rows := [][]string{}
	for part, name := range partNames {
		normal, under := medianOf(a.normal, part), medianOf(a.under, part)
		rows = append(rows, []string{name, seconds(normal), seconds(slices.Max(timesOf(a.normal, part))), seconds(under), seconds(slices.Max(timesOf(a.under, part))),
			fmt.Sprintf("%.2f", a.ratio(part))})
	}
	env.Reporter.Table([]string{"USER", fmt.Sprintf("NORMAL (%d)", len(a.normal)), "WORST", fmt.Sprintf("ATTACKED (%d)", len(a.under)), "WORST", "RATIO OF MEDIANS"}, rows)
	rows = [][]string{}
	for _, node := range env.Lab.NodeNames() {
		row := []string{node, fmt.Sprint(k.count[node])}
		for _, process := range processes {
			row = append(row, fmt.Sprintf("%.1f MiB", float64(a.memory.peaks[process][node])/1024))
		}
		rows = append(rows, row)
	}
	env.Reporter.Table(append([]string{"NODE", "KILLS"}, processes...), rows)
	env.Reporter.Note("requests of the tenant's client: %v; refused of them: %v; the last refusal: %v", a.tenant.done, a.tenant.refused, a.tenant.refusal)
}
