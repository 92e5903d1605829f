package lvm_test

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

func TestRAIDDamage(t *testing.T) {
	for legs, want := range map[string]lvm.Damage{
		"raid1 AA": {Of: 2}, "raid1 AD": {Of: 2, Legs: 1}, "raid1 DDA": {Of: 3, Legs: 2}, "raid1 DD": {Of: 2, Legs: 2, Lost: true},
		"raid5_ls AaA": {Of: 3}, "raid5_ls A-A": {Of: 3, Legs: 1}, "raid5_ls ADD": {Of: 3, Legs: 2, Lost: true},
		"raid6_zr ADDAA": {Of: 5, Legs: 2}, "raid6_zr DDDAA": {Of: 5, Legs: 3, Lost: true},
		"raid10 ADDA": {Of: 4, Legs: 2}, "raid10 DDAA": {Of: 4, Legs: 2, Lost: true}, "raid10 AADD": {Of: 4, Legs: 2, Lost: true},
		"raid4 AD": {Of: 2, Legs: 1}, "raid0 AD": {Of: 2, Legs: 1, Lost: true},
	} {
		kind, letters, _ := strings.Cut(legs, " ")
		if got := (dm.RaidStatus{Kind: kind, Legs: letters}).Damage(); got != want {
			t.Errorf("%s: %+v, want %+v", legs, got, want)
		}
	}
}
