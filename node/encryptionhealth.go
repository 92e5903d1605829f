package node

import (
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/luks"
)

// checkHeaders checks the LUKS headers of the active encrypted volumes.
func (s *Server) checkHeaders(volumes []lvm.Volume) (findings []lvm.Condition) {
	for _, v := range volumes {
		if v.Class.Encryption == lvm.EncryptionNone {
			continue
		}
		path, active, err := s.devices.Device(v.ID, v.UUID)
		if err != nil || !active {
			continue
		}
		h, err := s.encryption.Check(luks.Volume{Handle: v.ID.String(), UUID: v.UUID, Device: path, Copied: v.Source != lvm.ID{}})
		if err == nil && h.Problem != "" {
			findings = append(findings, lvm.Condition{Type: lvm.ConditionEncryptionHeaderDamaged, Group: v.Group, Volume: v, Text: h.Problem})
		}
	}
	return findings
}
