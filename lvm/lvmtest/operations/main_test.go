//go:build reallvm

package operations

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

func TestMain(m *testing.M) { reallvm.Main(m) }
