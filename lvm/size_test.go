package lvm

import "testing"

func TestShare(t *testing.T) {
	const mib, gib = Bytes(1 << 20), Bytes(1 << 30)
	for _, test := range []struct {
		part, whole Bytes
		want        string
	}{
		{3200 * mib, 3416 * mib, "3.1 of 3.3 GiB"}, {384 * mib, 400 * mib, "384 of 400 MiB"}, {8 * gib, 8 * gib, "8 of 8 GiB"}, {0, gib, "0 of 1 GiB"},
		{mib, 8 * gib, "1 MiB of 8 GiB"}, {3, 10, "3 of 10 B"}, {0, 0, "0 B of 0 B"}, {1 << 60, 1 << 62, "1048576 of 4194304 TiB"},
	} {
		if got := Share(test.part, test.whole); got != test.want {
			t.Errorf("%d of %d: %q, want %q", test.part, test.whole, got, test.want)
		}
	}
}
