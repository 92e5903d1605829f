package scenario

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/lab"
)

const (
	driverNamespace = "nodelvm-system"
	daemonSet       = "daemonset/nodelvm"
)

// Raise starts the lab of `make demo` and installs the driver in it exactly as shipped: the image that `make image`
// writes, the manifest in deploy/. The caller lowers the lab with l.Down, whatever Raise answers.
func Raise(ctx context.Context, l *lab.Lab, out io.Writer) (*Stage, error) {
	if err := l.Up(ctx, lab.UpOptions{Nodes: 3, ControlPlane: true, Progress: out}); err != nil {
		return nil, err
	}
	image, err := buildImage(ctx, out)
	if err != nil {
		return nil, err
	}
	stage, err := NewStage(l, NewNarrator(out))
	if err != nil {
		return nil, err
	}
	return stage, stage.install(ctx, image)
}

// root is the checkout: the scenario runs from a folder of it.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "versions.env")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("this is not run from within a checkout: no versions.env above the current folder")
}

// buildImage does what `make image` does, and tells where the archive is.
func buildImage(ctx context.Context, out io.Writer) (archive string, err error) {
	top, err := root()
	if err != nil {
		return "", err
	}
	archive = filepath.Join(top, "dist", "nodelvm-amd64.tar")
	cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", "./cmd/image", "--out", archive)
	cmd.Dir = filepath.Join(top, "deploy", "image")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile does: nothing is compiled twice
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building the image: %w", err)
	}
	return archive, nil
}

func (s *Stage) install(ctx context.Context, image string) error {
	top, err := root()
	if err != nil {
		return err
	}
	s.Narrator.Act("nodelvm is installed")
	for _, step := range []Step{
		{Says: "its image is imported under the name that the manifest asks for", Prove: func(ctx context.Context, s *Stage) error {
			return s.Lab.ImportImage(ctx, image)
		}},
		{Says: "deploy/nodelvm.yaml is applied as it is", Prove: func(ctx context.Context, s *Stage) error {
			return s.applyDriver(ctx, filepath.Join(top, "deploy", "nodelvm.yaml"))
		}},
		{Says: "its DaemonSet is ready on every node", Prove: func(ctx context.Context, s *Stage) error {
			_, err := s.kubectl(ctx, "", "rollout", "status", "-n", driverNamespace, daemonSet)
			return err
		}},
	} {
		if err := s.prove(ctx, step); err != nil {
			return fmt.Errorf("%s: %w%s", step.Says, err, s.Diagnosis(ctx))
		}
	}
	return nil
}

// applyDriver also restarts the driver of a kept lab, which may be an older build under the same name.
func (s *Stage) applyDriver(ctx context.Context, manifest string) error {
	_, err := s.Client.AppsV1().DaemonSets(driverNamespace).Get(ctx, "nodelvm", metav1.GetOptions{})
	kept := err == nil
	if _, err := s.kubectl(ctx, "", "apply", "-f", manifest); err != nil || !kept {
		return err
	}
	_, err = s.kubectl(ctx, "", "rollout", "restart", "-n", driverNamespace, daemonSet)
	return err
}

// Diagnosis collects what explains a failure: what the pods do, what the events say, the end of the driver's log.
func (s *Stage) Diagnosis(ctx context.Context) string {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	text := ""
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "pvc,pv", "-A"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"logs", "-n", driverNamespace, "-l", "app.kubernetes.io/name=nodelvm", "--all-containers", "--prefix", "--tail=25"},
	} {
		out, err := s.kubectl(ctx, "", args...)
		if err != nil {
			out += err.Error()
		}
		text += fmt.Sprintf("\n--- kubectl %v\n%s", args, tail(out, 6000))
	}
	return text
}

func tail(text string, most int) string {
	if len(text) > most {
		return "...\n" + text[len(text)-most:]
	}
	return text
}
