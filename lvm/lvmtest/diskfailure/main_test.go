//go:build reallvm

package diskfailure

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

func TestMain(m *testing.M) { reallvm.Main(m) }
