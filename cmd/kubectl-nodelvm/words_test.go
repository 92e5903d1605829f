package main

import (
	"testing"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/lvm"
)

// Sizes of the fixtures.
const (
	MiB = lvm.MiB
	GiB = lvm.GiB
)

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		layoutThin: string(lvm.LayoutThin), defaultPool: lvm.DefaultPool, stateReady: string(lvm.StateReady), stateDeleting: string(lvm.StateDeleting),
		troublePoolFull: string(lvm.TroublePoolFull), troublePoolFailed: string(lvm.TroublePoolFailed),
		troubleUnusable: string(lvm.TroubleUnusable), troubleSilent: string(lvm.TroubleSilent),
		kindOrphan: string(kube.OrphanLost), kindAbandoned: string(kube.OrphanAbandoned), kindForeign: string(kube.OrphanForeign),
	} {
		if got != want {
			t.Errorf("%q is %q in the driver", got, want)
		}
	}
}
