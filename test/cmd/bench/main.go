// Command bench compares the driver with bare LVM commands in a separate lab node (see package bench). It writes dist/bench.txt,
// which benchstat reads, and the tables of test/bench/results.md.
//
//	cd test && go run ./cmd/bench --image ../dist/nodelvm-amd64.tar
//
// In the node it runs itself with --in-node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nodelvm/nodelvm/test/bench"
	"github.com/nodelvm/nodelvm/test/lab"
)

type options struct {
	dir    string // of the lab
	image  string
	out    string
	doc    string
	rounds int
	parts  string
	inNode bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.dir, "dir", filepath.Join(os.TempDir(), "nodelvm-bench-lab"), "folder of the lab, which is raised and taken down")
	flag.StringVar(&o.image, "image", "../dist/nodelvm-amd64.tar", "the driver's image, as `make image` writes it")
	flag.StringVar(&o.out, "out", "../dist/bench.txt", "file for the samples")
	flag.StringVar(&o.doc, "doc", "bench/results.md", "document that gets the tables; empty: none")
	flag.IntVar(&o.rounds, "rounds", 7, "samples of each figure")
	flag.StringVar(&o.parts, "parts", "", "thick, thin, burst, publish, separated by commas; empty: all")
	flag.BoolVar(&o.inNode, "in-node", false, "measure here; what the command does to itself in the lab's node")
	flag.Parse()
	do := orchestrate
	if o.inNode {
		do = measure
	}
	if err := do(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, o options) error {
	var parts []string
	if o.parts != "" {
		parts = strings.Split(o.parts, ",")
	}
	return bench.Measure(ctx, bench.Config{Image: o.image, Rounds: o.rounds, Parts: parts, Out: os.Stdout, Say: os.Stderr})
}

// orchestrate starts the node, measures in it, and writes the samples and the tables.
func orchestrate(ctx context.Context, o options) (err error) {
	l, err := lab.Open(o.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx))) }()
	if err := l.Down(ctx); err != nil { // an earlier run has overwritten its disks
		return err
	}
	if err := l.Up(ctx, lab.UpOptions{Nodes: 1, Progress: os.Stderr}); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return err
	}
	samples, err := os.Create(o.out)
	if err != nil {
		return err
	}
	if err := errors.Join(inNode(ctx, l, o, samples), samples.Close()); err != nil {
		return err
	}
	return writeTables(o)
}

// inNode copies the image and this program to the share, and runs the program in the node. It uses new names each time, because a
// node may still cache the content of an old one.
func inNode(ctx context.Context, l *lab.Lab, o options, samples io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	mark := strconv.FormatInt(time.Now().UnixNano(), 36)
	image, program := "bench-image-"+mark+".tar", "bench-"+mark
	for name, from := range map[string]string{image: o.image, program: self} {
		to := filepath.Join(l.Share(), name)
		if err := copyFile(from, to); err != nil {
			return err
		}
		defer func() { _ = os.Remove(to) }()
	}
	code, err := l.Exec(ctx, l.NodeNames()[0], nil, samples, os.Stderr, "/mnt/lab/"+program,
		"--in-node", "--image=/mnt/lab/"+image, "--parts="+o.parts, "--rounds="+strconv.Itoa(o.rounds))
	if err == nil && code != 0 {
		err = fmt.Errorf("the measurement in the node ended with exit code %d", code)
	}
	return err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// writeTables writes the tables to the document. A run of only some parts has no tables.
func writeTables(o options) error {
	if o.doc == "" || o.parts != "" {
		return nil
	}
	in, err := os.Open(o.out)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	run, err := bench.Read(in)
	if err != nil {
		return err
	}
	table, err := bench.Table(run)
	if err != nil {
		return err
	}
	fmt.Print(table)
	document, err := os.ReadFile(o.doc)
	if err != nil {
		return err
	}
	text, err := bench.Insert(string(document), table)
	if err != nil {
		return err
	}
	return os.WriteFile(o.doc, []byte(text), 0o644)
}
