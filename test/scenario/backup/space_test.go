package backup

import "testing"

const compared = `0 1835008 thin-pool 12 210/1024 1500/28672 - rw no_discard_passdown queue_if_no_space - 1024
0 1835008 thin-pool 254:2 254:3 128 0 1 no_discard_passdown
== changed
<superblock uuid="" time="7" transaction="12" data_block_size="128" nr_data_blocks="28672">
  <diff left="3" right="1">
    <same begin="0" length="40"/>
    <different begin="40" length="2"/>
    <right_only begin="90" length="5"/>
  </diff>
</superblock>
== replayed
  <diff left="3" right="5">
    <different begin="1" length="1"/>
  </diff>
`

func TestParseUse(t *testing.T) {
	const block = 128 * 512
	use, err := parseUse(compared)
	if want := (poolUse{allocated: 1500 * block, changed: 7 * block, replayed: block}); err != nil || use != want {
		t.Errorf("%+v, %v; want %+v", use, err, want)
	}
	for _, bad := range []string{"", "0 1 linear 254:1 0\n", "== changed\n"} {
		if use, err := parseUse(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, use)
		}
	}
}

func TestKindsOfLogicalVolumes(t *testing.T) {
	for tags, want := range map[string]struct {
		snapshot, copy bool
		source         string
	}{
		"nodelvm.v=1,nodelvm.kind=snapshot,nodelvm.source=pvc-1":    {true, false, "pvc-1"},
		"nodelvm.v=1,nodelvm.source=snap-1,nodelvm.access=replayed": {false, true, "snap-1"},
		"nodelvm.v=1,nodelvm.layout=thin":                           {},
	} {
		if isSnapshot(tags) != want.snapshot || isReadOnlyCopy(tags) != want.copy || sourceOf(tags) != want.source {
			t.Errorf("%s: %v, %v, %q", tags, isSnapshot(tags), isReadOnlyCopy(tags), sourceOf(tags))
		}
	}
}
