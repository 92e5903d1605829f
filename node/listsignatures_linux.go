package node

import "context"

// ListSignatures names what blkid, with unrestricted probing, and wipefs find on a device: file systems, partition tables, and
// all else that they know. It never writes. An empty list alone does not prove that the device is blank.
func ListSignatures(ctx context.Context, device string) ([]string, error) {
	m := newMachine()
	content, err := m.blkid(ctx, device)
	if err != nil {
		return nil, err
	}
	if content.Type != "" {
		content.Others = append(content.Others, "a file system of type "+content.Type)
	}
	if len(content.Others) > 0 {
		return content.Others, nil
	}
	return m.wipefs(ctx, device)
}
