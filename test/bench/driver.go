package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const httpEndpoint = "127.0.0.1:9808"

// driver is the running released binary in its image's root file system, and a client of it.
type driver struct {
	csi.ControllerClient
	cmd  *exec.Cmd
	conn *grpc.ClientConn
	log  string

	handles sync.Map // of volumes and snapshots, by name
}

// startDriver starts the driver with its default settings and these flags, but without a cluster, and waits until it is ready.
func (n *node) startDriver(ctx context.Context, flags ...string) (*driver, error) {
	const socket = "/run/nodelvm/csi.sock"
	serve := command{root: n.root, env: []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin"}, argv: append([]string{
		"/usr/local/bin/nodelvm", "serve", "--standalone", "--cluster-id=bench", "--node-name=node-1", "--kubelet-registration=false",
		"--endpoint=unix://" + socket, "--http-endpoint=" + httpEndpoint,
	}, flags...)}
	d := &driver{cmd: serve.cmd(context.WithoutCancel(ctx)), log: filepath.Join(n.scratch, "driver.log")}
	log, err := os.Create(d.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the driver has its own descriptor
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	d.conn, err = grpc.NewClient("unix://"+filepath.Join(n.root, socket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	d.ControllerClient = csi.NewControllerClient(d.conn)
	if err := d.waitReady(ctx); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

func (d *driver) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+httpEndpoint+"/readyz", nil)
		if err != nil {
			return err
		}
		if answer, err := http.DefaultClient.Do(request); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("the driver is not ready after a minute; its log: %s", d.logged())
}

// stop interrupts the driver and returns an error unless it exits with 0.
func (d *driver) stop() error {
	if d.conn != nil {
		_ = d.conn.Close()
	}
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return d.cmd.Wait()
}

func (d *driver) logged() string {
	text, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// activity is what the driver's metrics say about its work.
type activity struct {
	processes float64       // LVM processes since its start
	inLVM     time.Duration // sum of their durations
	busy      bool          // an operation is in flight, or data is not wiped yet
}

// activity reads the metrics.
func (d *driver) activity(ctx context.Context) (activity, error) {
	var a activity
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+httpEndpoint+"/metrics", nil)
	if err != nil {
		return a, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return a, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		words, err := io.ReadAll(answer.Body)
		return a, errors.Join(fmt.Errorf("the driver's metrics: %s: %s", answer.Status, words), err)
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		value, err := strconv.ParseFloat(text[strings.LastIndexByte(text, ' ')+1:], 64)
		if err != nil {
			continue // a comment
		}
		switch name {
		case "nodelvm_lvm_command_duration_seconds_count":
			a.processes += value
		case "nodelvm_lvm_command_duration_seconds_sum":
			a.inLVM += time.Duration(value * float64(time.Second))
		case "nodelvm_operations_in_flight", "nodelvm_volume_group_wipe_backlog_bytes":
			a.busy = a.busy || value > 0
		}
	}
	return a, lines.Err()
}

// quiet is how long the metrics must not change before the driver counts as idle. It is longer than the driver delays work to batch
// it (a second).
const quiet = 1600 * time.Millisecond

// settled waits until the driver has finished all deferred work, and returns its activity then.
func (d *driver) settled(ctx context.Context) (activity, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	last, err := d.activity(ctx)
	since := time.Now()
	for pause := quiet / 2; err == nil && (last.busy || time.Since(since) < quiet); {
		time.Sleep(pause)
		asked := time.Now()
		var now activity
		if now, err = d.activity(ctx); now != last {
			last, since = now, time.Now()
		}
		pause = max(quiet/2, 5*time.Since(asked)) // reading metrics must not slow down the driver
	}
	return last, err
}

// resident returns the driver's resident memory in bytes.
func (d *driver) resident() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kib * 1024, err
		}
	}
	return 0, errors.New("the kernel tells no VmRSS")
}
