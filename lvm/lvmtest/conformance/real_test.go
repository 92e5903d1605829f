//go:build reallvm

package conformance

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

func TestMain(m *testing.M) { reallvm.Main(m) }

func TestConformance_RealLVM(t *testing.T) {
	Run(t, func(t *testing.T) hosttest.Fixture { return replayed(t, reallvm.NewFixture(t)) })
}
