//go:build reallvm

package thinpool

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

func TestMain(m *testing.M) { reallvm.Main(m) }
