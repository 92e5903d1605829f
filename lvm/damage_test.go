package lvm

import (
	"strings"
	"testing"
)

func TestRAIDDamage(t *testing.T) {
	for legs, want := range map[string]damage{
		"raid1 AA": {of: 2}, "raid1 AD": {of: 2, legs: 1}, "raid1 DDA": {of: 3, legs: 2}, "raid1 DD": {of: 2, legs: 2, lost: true},
		"raid5_ls AaA": {of: 3}, "raid5_ls A-A": {of: 3, legs: 1}, "raid5_ls ADD": {of: 3, legs: 2, lost: true},
		"raid6_zr ADDAA": {of: 5, legs: 2}, "raid6_zr DDDAA": {of: 5, legs: 3, lost: true},
		"raid10 ADDA": {of: 4, legs: 2}, "raid10 DDAA": {of: 4, legs: 2, lost: true}, "raid10 AADD": {of: 4, legs: 2, lost: true},
		"raid4 AD": {of: 2, legs: 1}, "raid0 AD": {of: 2, legs: 1, lost: true},
	} {
		kind, letters, _ := strings.Cut(legs, " ")
		if got := (raidStatus{kind: kind, legs: letters}).damage(); got != want {
			t.Errorf("%s: %+v, want %+v", legs, got, want)
		}
	}
}
