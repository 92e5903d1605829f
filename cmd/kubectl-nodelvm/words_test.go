package main

import (
	"testing"

	"github.com/nodelvm/nodelvm/kube"
)

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		kindOrphan: string(kube.OrphanLost), kindAbandoned: string(kube.OrphanAbandoned), kindForeign: string(kube.OrphanForeign),
	} {
		if got != want {
			t.Errorf("%q is %q in the driver", got, want)
		}
	}
}
