//go:build reallvm

package identity

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

func TestMain(m *testing.M) { reallvm.Main(m) }
