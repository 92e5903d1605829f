package backup

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// spaceWatch observes the thin pool of the source's node during a backup.
type spaceWatch struct {
	volumes map[string]bool // logical volumes of the claims
	before  int64           // what was provisioned in the pool before
	most    int64           // the most that was provisioned
	first   *poolUse        // the first sample with a snapshot of each volume
	last    poolUse         // the last one
	samples int             // with a snapshot of each volume
	copies  map[string]int64
	virtual int64 // of the snapshots together
	failed  error // of the last sample that could not be taken
}

// poolUse is what the pool has allocated at one moment, in bytes.
type poolUse struct {
	allocated int64
	changed   int64 // blocks of the volumes that differ from their snapshots
	replayed  int64 // blocks of the copies that differ from their snapshots
}

func isSnapshot(tags string) bool {
	return slices.Contains(strings.Split(tags, ","), "nodelvm.kind=snapshot")
}

func isReadOnlyCopy(tags string) bool { return strings.Contains(","+tags, ",nodelvm.access=") }

// sourceOf returns the logical volume from which a snapshot or copy was made.
func sourceOf(tags string) string {
	for _, tag := range strings.Split(tags, ",") {
		if lv, ok := strings.CutPrefix(tag, "nodelvm.source="); ok {
			return lv
		}
	}
	return ""
}

// thinVolume is a row of lvs.
type thinVolume struct {
	Name string `json:"lv_name"`
	Tags string `json:"lv_tags"`
	Size string `json:"lv_size"`
	ID   string `json:"thin_id"`
}

func thinVolumes(ctx context.Context, env *scenario.Environment) ([]thinVolume, error) {
	return cluster.ReportLVM[thinVolume](ctx, env.Cluster, sourceNode, "lv", "lvs", "-o", "lv_name,lv_tags,lv_size,thin_id")
}

func newSpaceWatch(ctx context.Context, env *scenario.Environment) (*spaceWatch, error) {
	w := &spaceWatch{volumes: map[string]bool{}, copies: map[string]int64{}}
	for _, claim := range claims {
		v, err := env.VolumeOf(ctx, claim)
		if err != nil {
			return nil, err
		}
		w.volumes[v.Lv] = true
	}
	var err error
	w.before, err = provisioned(ctx, env)
	return w, err
}

// provisioned returns what the driver counts in the thin pool, in bytes.
func provisioned(ctx context.Context, env *scenario.Environment) (total int64, err error) {
	pod, err := env.DriverPodOn(ctx, sourceNode)
	if err != nil {
		return 0, err
	}
	text, err := env.DriverPage(ctx, pod.Name, "/metrics")
	if err != nil {
		return 0, err
	}
	err = scenario.EachSample(text, func(name, _ string, value float64) {
		if name == "nodelvm_thin_pool_provisioned_bytes" {
			total += int64(value)
		}
	})
	if err == nil && total == 0 {
		err = errors.New("the driver reports nothing that is provisioned in a thin pool")
	}
	return total, err
}

// observe takes a sample. A failure does not end the backup: check reports it if there are too few samples.
func (w *spaceWatch) observe(ctx context.Context, env *scenario.Environment) error {
	if err := w.sample(ctx, env); err != nil {
		w.failed = err
	}
	return nil
}

// sample compares the volumes and the copies with the snapshots, in the pool's own metadata. It compares nothing before each volume has its snapshot.
func (w *spaceWatch) sample(ctx context.Context, env *scenario.Environment) error {
	rows, err := thinVolumes(ctx, env)
	if err != nil {
		return err
	}
	now, err := provisioned(ctx, env)
	if err != nil {
		return err
	}
	w.most = max(w.most, now)
	ids, snapshots := map[string]string{}, map[string]string{} // by LV; LV of the volume -> LV of its snapshot
	var virtual int64
	for _, row := range rows {
		ids[row.Name] = row.ID
		bytes, err := strconv.ParseInt(row.Size, 10, 64)
		if err != nil {
			return err
		}
		if isReadOnlyCopy(row.Tags) {
			w.copies[row.Name] = bytes
		}
		if volume := sourceOf(row.Tags); isSnapshot(row.Tags) && w.volumes[volume] {
			snapshots[volume] = row.Name
			virtual += bytes
		}
	}
	if len(snapshots) < len(w.volumes) {
		return nil
	}
	w.virtual = virtual
	var pairs []string
	for volume, snapshot := range snapshots {
		pairs = append(pairs, "changed:"+ids[snapshot]+":"+ids[volume])
		for _, row := range rows {
			if isReadOnlyCopy(row.Tags) && sourceOf(row.Tags) == snapshot {
				pairs = append(pairs, "replayed:"+ids[snapshot]+":"+row.ID)
			}
		}
	}
	out, err := env.RunOnNode(ctx, sourceNode, append([]string{"sh", "-ec", compareScript, "compare"}, pairs...)...)
	if err != nil {
		return err // a snapshot may have just been deleted
	}
	use, err := parseUse(string(out))
	if err != nil {
		return err
	}
	if w.first == nil {
		w.first = &use
	}
	w.last = use
	w.samples++
	return nil
}

// compareScript prints the pool's status and block size, and then the differences of pairs of thin volumes, NAME:ID:ID, from a snapshot of the metadata.
const compareScript = `
pool=$(dmsetup ls --target thin-pool | cut -f1)
dmsetup status "$pool"
dmsetup table "$pool"
dmsetup message "$pool" 0 release_metadata_snap 2>/dev/null || true
dmsetup message "$pool" 0 reserve_metadata_snap
trap 'dmsetup message "$pool" 0 release_metadata_snap' EXIT
for pair in "$@"; do
	IFS=: read -r name one two <<END
$pair
END
	echo "== $name"
	thin_delta --metadata-snap --thin1 "$one" --thin2 "$two" "/dev/mapper/${pool%-tpool}_tmeta"
done`

var (
	poolStatus = regexp.MustCompile(`(?m)^\d+ \d+ thin-pool \d+ \d+/\d+ (\d+)/\d+ `)
	poolTable  = regexp.MustCompile(`(?m)^\d+ \d+ thin-pool \S+ \S+ (\d+) `)
	difference = regexp.MustCompile(`<(?:different|left_only|right_only) begin="\d+" length="(\d+)"`)
)

// parseUse reads what compareScript prints.
func parseUse(text string) (poolUse, error) {
	head, rest, _ := strings.Cut(text, "== ")
	status, table := poolStatus.FindStringSubmatch(head), poolTable.FindStringSubmatch(head)
	if status == nil || table == nil {
		return poolUse{}, fmt.Errorf("unreadable: %q", head)
	}
	const sector = 512
	blocks, _ := strconv.ParseInt(status[1], 10, 64) // digits
	block, _ := strconv.ParseInt(table[1], 10, 64)
	block *= sector
	use := poolUse{allocated: blocks * block}
	for _, part := range strings.Split(rest, "== ") {
		var differ int64
		for _, match := range difference.FindAllStringSubmatch(part, -1) {
			n, _ := strconv.ParseInt(match[1], 10, 64)
			differ += n * block
		}
		if strings.HasPrefix(part, "changed") {
			use.changed += differ
		} else {
			use.replayed += differ
		}
	}
	return use, nil
}

// copyCounts is what a read-only copy of at most 4 GiB counts in its pool.
const copyCounts = 64 << 20

// check compares what was allocated and provisioned in the pool with what may be.
func (w *spaceWatch) check(env *scenario.Environment) error {
	if w.samples < 2 || len(w.copies) < len(claims) {
		return fmt.Errorf("%d samples saw a snapshot of each volume, and all samples %d read-only copies; the last failure: %w", w.samples, len(w.copies), w.failed)
	}
	grown, counted := w.last.allocated-w.first.allocated, w.most-w.before
	env.Reporter.Note("allocated in the pool while all snapshots existed (%d samples): %.1f MiB; the database changed %.1f MiB, the replay of journals %.1f MiB",
		w.samples, mebibytes(grown), mebibytes(w.last.changed), mebibytes(w.last.replayed))
	env.Reporter.Note("provisioned in the pool: %.0f MiB more than before, %.0f MiB of it for the snapshots of %d volumes, the rest for %d read-only copies",
		mebibytes(counted), mebibytes(w.virtual), len(w.volumes), len(w.copies))
	if most := w.last.changed + w.last.replayed; grown > most {
		return fmt.Errorf("the pool allocated %d bytes, and the volumes and copies differ from the snapshots by %d", grown, most)
	}
	if most := w.virtual + int64(len(w.copies))*copyCounts; counted > most {
		return fmt.Errorf("the driver counts %d bytes more than before, and snapshots and copies are %d", counted, most)
	}
	return nil
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
