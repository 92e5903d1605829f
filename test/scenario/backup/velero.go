package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/docrun"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const veleroNamespace = "velero"

func (s *state) startServer(ctx context.Context, env *scenario.Environment) (err error) {
	if s.server, err = env.Lab.StartS3(ctx); err != nil {
		return err
	}
	if err := s.findVelero(ctx, env); err != nil {
		return err
	}
	for _, image := range s.velero.Images {
		if err := env.Lab.ImportImage(ctx, image); err != nil {
			return err
		}
	}
	return nil
}

// findVelero compiles Velero if that is not done. A later scenario that runs alone finds it too.
func (s *state) findVelero(ctx context.Context, env *scenario.Environment) (err error) {
	if s.velero.Command == "" {
		s.velero, err = env.Lab.Velero(ctx)
	}
	return err
}

// followPage runs the page's commands, with the lab's S3 server. The configuration also gets the classes of the other scenarios, and lets each node transfer
// three volumes at a time. The page leaves no volume.
func (s *state) followPage(ctx context.Context, env *scenario.Environment) error {
	const readOnly = `{"readOnly": true}`
	page := docrun.Backup(
		"https://s3.example", s.server.URL, "REGION", s.server.Region, "BUCKET", s.server.Bucket, "ACCESS-KEY", s.server.Key, "SECRET-KEY", s.server.Secret,
		`"local-thin": `+readOnly+`}`, `"local-thin": `+readOnly+`, "thin": `+readOnly+`, "thin-xfs": `+readOnly+`}, "loadConcurrency": {"globalConfig": 3}`,
	)
	if err := scenario.Follow(page)(ctx, env); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { return env.CheckOnlyPools(ctx) })
}

// placeServer also gives the class of the other scenarios the label that the page gives its own.
func placeServer(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("life-classes.yaml")(ctx, env); err != nil {
		return err
	}
	const one = `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null},"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"` + serverNode + `"}}}}}`
	for _, args := range [][]string{
		{"delete", "volumesnapshotclass", "local-thin"}, // Velero wants one class of the driver with its label
		{"label", "volumesnapshotclass", "thin", "velero.io/csi-volumesnapshot-class=true", "--overwrite"},
		{"patch", "deployment", "velero", "-n", veleroNamespace, "-p", one},
		{"rollout", "status", "deployment/velero", "-n", veleroNamespace},
	} {
		if _, err := env.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return nil
}

// run runs Velero's command.
func (s *state) run(ctx context.Context, env *scenario.Environment, args ...string) error {
	_, err := s.output(ctx, env, args...)
	return err
}

func (s *state) output(ctx context.Context, env *scenario.Environment, args ...string) (string, error) {
	if err := s.findVelero(ctx, env); err != nil {
		return "", err
	}
	var said bytes.Buffer
	err := env.Lab.Run(ctx, nil, &said, &said, append([]string{s.velero.Command}, args...)...)
	if err != nil {
		err = fmt.Errorf("velero %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return said.String(), err
}

// phases are those in which a backup or restore ends. The value is whether it has all it should have.
var phases = map[string]bool{"Completed": true, "PartiallyFailed": false, "Failed": false, "FailedValidation": false, "FinalizingPartiallyFailed": false}

// completes waits until a backup or restore has ended, and fails with Velero's description of it unless all went well. It calls meanwhile again and again.
func (s *state) completes(ctx context.Context, env *scenario.Environment, kind, name string, meanwhile func() error) error {
	var well bool
	err := cluster.Eventually(ctx, func() error {
		phase, err := env.Kubectl(ctx, "", "get", kind+".velero.io", name, "-n", veleroNamespace, "-o", "jsonpath={.status.phase}")
		if err != nil {
			return err
		}
		ended := false
		if well, ended = phases[phase]; !ended {
			return errors.Join(fmt.Errorf("%s %s is %s", kind, name, phase), meanwhile())
		}
		return nil
	})
	if err == nil && !well {
		err = fmt.Errorf("%s %s did not succeed", kind, name)
	}
	if err == nil {
		return nil
	}
	ctx, cancel := cluster.CleanUpContext(ctx)
	defer cancel()
	described, _ := s.output(ctx, env, kind, "describe", name, "--details")
	logs, _ := s.output(ctx, env, kind, "logs", name)
	return fmt.Errorf("%w\n%s\n%s", err, described, cluster.Tail(logs, 4000))
}

// transfer is a DataUpload or DataDownload.
type transfer struct {
	Metadata struct{ CreationTimestamp time.Time }
	Spec     struct {
		SourcePVC    string
		TargetVolume struct{ PVC string }
	}
	Status struct {
		Node                                string
		StartTimestamp, CompletionTimestamp time.Time
		Progress                            struct{ BytesDone int64 }
	}
}

// noteTransfers prints how long Velero took for each volume.
func (s *state) noteTransfers(ctx context.Context, env *scenario.Environment, kind, selector string) error {
	text, err := env.Kubectl(ctx, "", "get", kind+".velero.io", "-n", veleroNamespace, "-l", selector, "-o", "json")
	if err != nil {
		return err
	}
	var list struct{ Items []transfer }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return err
	}
	if len(list.Items) != len(claims) {
		return fmt.Errorf("there are %d %s, want one for each of %v", len(list.Items), kind, claims)
	}
	for _, t := range list.Items {
		env.Reporter.Note("%s%s on %s: %d MiB in %.0f s, %.0f s after it was requested", t.Spec.SourcePVC, t.Spec.TargetVolume.PVC, t.Status.Node,
			t.Status.Progress.BytesDone>>20, t.Status.CompletionTimestamp.Sub(t.Status.StartTimestamp).Seconds(),
			t.Status.StartTimestamp.Sub(t.Metadata.CreationTimestamp).Seconds())
	}
	return nil
}

func (s *state) deleteBackup(ctx context.Context, env *scenario.Environment) error {
	if err := s.run(ctx, env, "backup", "delete", backupName, "--confirm"); err != nil {
		return err
	}
	err := cluster.Eventually(ctx, func() error {
		left, err := env.Kubectl(ctx, "", "get", "backups.velero.io,restores.velero.io", "-n", veleroNamespace, "-o", "name")
		if err == nil && strings.Contains(left, backupName) {
			err = fmt.Errorf("these are still there: %s", left)
		}
		return err
	})
	if err != nil {
		return err
	}
	if s.server, err = env.Lab.StartS3(ctx); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.server.Folder, "backups", backupName)); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the bucket still has backups/%s (%w)", backupName, err)
	}
	return nothingOfBackupIsLeft(ctx, env)
}

func removeVelero(ctx context.Context, env *scenario.Environment) error {
	for _, args := range [][]string{
		{"delete", "namespace", veleroNamespace, "--wait"},
		{"delete", "crd", "-l", "component=velero"},
		{"delete", "clusterrolebinding", "-l", "component=velero"},
	} {
		if _, err := env.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	if err := scenario.DeleteEverything(ctx, env); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { return env.CheckOnlyPools(ctx) })
}
