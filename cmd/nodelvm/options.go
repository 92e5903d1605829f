package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// driverName is the driver's name in CSIDriver, StorageClass and PV objects.
const driverName = "nodelvm.io"

// options are the flags of `nodelvm serve`.
type options struct {
	endpoint       string
	nodeName       string
	kubeletDir     string
	register       bool
	httpEndpoint   string
	sidecarMetrics map[string]string
	volumeLimit    int64
	clusterID      string
	standalone     bool
	lockDir        string
	stateDir       string
	volumeGroups   string
	prepareEvery   time.Duration
	emptyPoolsFor  time.Duration
	snapshots      bool
	shutdownGrace  time.Duration
	logLevel       string
	logFormat      string
}

func (o *options) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.endpoint, "endpoint", "unix:///var/lib/kubelet/plugins/"+driverName+"/csi.sock", "CSI socket to serve on")
	flags.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "this node's name: its topology value and its CSI node id (default: the environment's NODE_NAME)")
	flags.StringVar(&o.kubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's root directory, under the same path here as on the host")
	flags.BoolVar(&o.register, "register", true, "register with the kubelet (false: the node-driver-registrar sidecar does it)")
	flags.StringVar(&o.httpEndpoint, "http-endpoint", ":9808", "address of /healthz, /readyz, /metrics and /v1/status; empty: none")
	flags.StringToStringVar(&o.sidecarMetrics, "sidecar-metrics", nil, "NAME=ADDRESS of metrics that this process serves as /metrics/NAME, to those who may read its own")
	flags.Int64Var(&o.volumeLimit, "volume-limit", 0, "how many volumes the scheduler may place on this node; 0: not limited")
	flags.StringVar(&o.clusterID, "cluster-id", os.Getenv("CLUSTER_ID"), "written to the tags of every volume made here (default: the environment's CLUSTER_ID, else the UID of the namespace kube-system)")
	flags.BoolVar(&o.standalone, "standalone", false, "never speak to a Kubernetes API server; needs --cluster-id")
	flags.StringVar(&o.lockDir, "lock-dir", "/run/lock/lvm", "the host's LVM lock directory")
	flags.StringVar(&o.stateDir, "state-dir", "/var/lib/nodelvm", "host directory for the backups of LVM's metadata")
	flags.StringVar(&o.volumeGroups, "volume-groups", "", "file that declares this node's volume groups, as for nodelvm prepare; empty: none are made here")
	flags.DurationVar(&o.prepareEvery, "prepare-every", 5*time.Minute, "how often blank disks that came later are looked for; 0: only at the start")
	flags.DurationVar(&o.emptyPoolsFor, "empty-pools-for", 10*time.Minute, "how long a thin pool that the driver made may hold nothing until it is removed; 0: for ever")
	flags.BoolVar(&o.snapshots, "snapshots", false, "csi-snapshotter runs beside this driver: label the VolumeSnapshotContents made by hand whose snapshot is here")
	flags.DurationVar(&o.shutdownGrace, "shutdown-grace", 9*time.Minute, "how long running LVM commands are awaited after SIGTERM")
	flags.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "json or console")
}

// check finds what is wrong with the flags before anything is started.
func (o *options) check() error {
	switch {
	case o.nodeName == "":
		return errors.New("--node-name is empty; give this node's name, or set NODE_NAME")
	case o.standalone && o.clusterID == "":
		return errors.New("--standalone needs --cluster-id: without an API server there is nobody to ask for it")
	case o.prepareEvery < 0:
		return fmt.Errorf("--prepare-every is %s; give 0 for never, or a positive time", o.prepareEvery)
	case o.emptyPoolsFor < 0:
		return fmt.Errorf("--empty-pools-for is %s; give 0 for ever, or a positive time", o.emptyPoolsFor)
	case o.volumeLimit < 0:
		return fmt.Errorf("--volume-limit is %d; give 0 for no limit, or a positive number", o.volumeLimit)
	}
	_, err := o.socket()
	return err
}

// socket is the path of --endpoint.
func (o *options) socket() (string, error) {
	path, ok := strings.CutPrefix(o.endpoint, "unix://")
	if !ok || !filepath.IsAbs(path) {
		return "", fmt.Errorf("--endpoint is %q; give a Unix socket as unix:///absolute/path", o.endpoint)
	}
	return path, nil
}
