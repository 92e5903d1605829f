package main

import (
	"testing"

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
	} {
		if got != want {
			t.Errorf("%q is %q in lvm", got, want)
		}
	}
}
