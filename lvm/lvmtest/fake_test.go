package lvmtest_test

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/conformance"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(*testing.T) hosttest.Fixture { return hosttest.OnFake(hosttest.NewNode()) })
}
