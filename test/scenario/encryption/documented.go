package encryption

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/docrun"
)

// documentedKey runs the command with which docs/howto/encryption.md creates the file "key", and returns the key.
func documentedKey(ctx context.Context) (string, error) {
	top, err := cluster.Checkout()
	if err != nil {
		return "", err
	}
	page, err := os.ReadFile(filepath.Join(top, "docs", "howto", "encryption.md"))
	if err != nil {
		return "", err
	}
	blocks, err := docrun.Parse(string(page))
	if err != nil {
		return "", err
	}
	for _, block := range blocks {
		command, _, _ := strings.Cut(block.Text, "\n")
		if printer, creates := strings.CutSuffix(command, "> key"); creates {
			key, err := exec.CommandContext(ctx, "bash", "-eo", "pipefail", "-c", printer).Output()
			return string(key), err
		}
	}
	return "", errors.New("no block of docs/howto/encryption.md creates a key")
}
