package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// part is one part of the suite: a command with a log. Below results, a path without an ending, are its other files: NAME.usage and
// NAME.tools have its processor time, NAME.logs the logs of its labs if it failed, NAME-*.json the events of its tests, and NAME-*.repeat the command of each.
type part struct {
	name    string
	argv    []string
	env     []string
	log     string
	results string
	nodes   bool // it starts lab nodes

	began, ended time.Time // zero: not yet
	err          error
}

func newPart(dir, name string, argv []string) *part {
	return &part{name: name, argv: argv, log: filepath.Join(dir, name+".log"), results: filepath.Join(dir, name)}
}

func (p *part) isRunning() bool { return !p.began.IsZero() && p.ended.IsZero() }

// interruptTime limits how long an interrupted part may take to end. `suite adopt` needs less.
const interruptTime = 3 * time.Minute

func (p *part) run(ctx context.Context) (err error) {
	if ctx.Err() != nil {
		return errors.New("not started: the suite was interrupted")
	}
	for _, file := range []string{p.results + ".usage", p.results + ".tools", p.results + ".logs"} {
		if err := os.RemoveAll(file); err != nil {
			return err
		}
	}
	log, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = interruptTime
	return cmd.Run()
}
