package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nodelvm/nodelvm/api"
	kubemove "github.com/nodelvm/nodelvm/kube/move"
)

// options are the flags of `nodelvm serve`.
type options struct {
	endpoint       string
	nodeName       string
	kubeletDir     string
	register       bool
	httpEndpoint   string
	sidecarMetrics map[string]string
	apiProxy       string
	volumeLimit    int64
	clusterID      string
	standalone     bool
	lockDir        string
	stateDir       string
	devicesFile    string
	volumeGroups   string
	prepareEvery   time.Duration
	emptyPoolsFor  time.Duration
	snapshots      bool
	groupSnapshots bool
	trim           bool
	ioLimits       string
	move           moveOptions
	shutdownGrace  time.Duration
	logLevel       string
	logFormat      string
}

func (o *options) bind(flags *pflag.FlagSet) {
	o.move.address = os.Getenv("POD_IP")
	flags.StringVar(&o.endpoint, "endpoint", "unix:///var/lib/kubelet/plugins/"+api.DriverName+"/csi.sock", "CSI socket")
	flags.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node: topology value and CSI node ID (default: environment variable NODE_NAME)")
	flags.StringVar(&o.kubeletDir, "kubelet-dir", defaultKubeletDir, "root directory of the kubelet, mounted at the same path as on the host")
	flags.BoolVar(&o.register, "kubelet-registration", true, "register with the kubelet (false: a node-driver-registrar sidecar registers the driver)")
	flags.StringVar(&o.httpEndpoint, "http-endpoint", ":9808", "address of /healthz, /readyz, /metrics and /v1/status; empty: no HTTP server")
	flags.StringToStringVar(&o.sidecarMetrics, "sidecar-metrics", nil, "sidecar metrics to serve at /metrics/NAME with the same authorization as /metrics, as NAME=ADDRESS")
	flags.StringVar(&o.apiProxy, "api-proxy-address", "", "loopback address at which csi-provisioner reads the Kubernetes API without the claims and volumes of other nodes; empty: no proxy")
	flags.Int64Var(&o.volumeLimit, "max-volumes-per-node", 0, "maximum number of volumes that the scheduler places on this node; 0: no limit")
	flags.StringVar(&o.clusterID, "cluster-id", os.Getenv("CLUSTER_ID"), "cluster ID for the tags of all volumes (default: environment variable CLUSTER_ID, or else the UID of the namespace kube-system)")
	flags.BoolVar(&o.standalone, "standalone", false, "run without a Kubernetes API server; requires --cluster-id")
	flags.StringVar(&o.lockDir, "lock-dir", "/run/lock/lvm", "directory of the host's LVM locks (lvm.conf: locking_dir)")
	flags.StringVar(&o.stateDir, "state-dir", "/var/lib/nodelvm", "host directory for backups of LVM metadata, the record of the node's disks, the record of accepted physical volumes, and the UID of the cluster")
	bindDevicesFile(flags, &o.devicesFile)
	flags.StringVar(&o.volumeGroups, "volume-groups-file", "", "YAML or JSON file that declares the volume groups, as for nodelvm prepare; empty: the driver creates no volume group")
	flags.DurationVar(&o.prepareEvery, "device-scan-interval", 5*time.Minute, "interval between scans for new blank disks; 0: scan only at the start")
	flags.DurationVar(&o.emptyPoolsFor, "empty-thin-pool-ttl", 10*time.Minute, "time after which the driver removes an empty thin pool that it created; 0: never")
	flags.BoolVar(&o.snapshots, "snapshots", false, "csi-snapshotter runs in the driver's pod: label the pre-provisioned VolumeSnapshotContents whose snapshot is on this node")
	flags.BoolVar(&o.groupSnapshots, "group-snapshots", false, "take and delete group snapshots of this node's volumes: serve the CSI GroupController service")
	flags.BoolVar(&o.trim, "trim", false, "trim the file systems of storage classes and claims with the annotation "+api.AnnotationTrimInterval)
	flags.StringVar(&o.ioLimits, "io-limits", "", "directory where the driver sees the root of the node's cgroup v2: limit the I/O of the volumes as their VolumeAttributesClasses say; empty: no limits")
	flags.StringVar(&o.move.listen, "move", "", "address at which other nodes copy the volumes that move to them, as :9812: move volumes as claims say; empty: no volume moves")
	flags.StringVar(&o.move.tokenFile, "move-token-file", "/var/run/secrets/nodelvm.io/move/token", "file with this pod's token with the audience "+api.AudienceMove+", by which other nodes know this one")
	flags.Var(&o.move.rate, "move-rate", "maximum bytes per second that this node sends, and that it receives, for all moves; 0: no limit")
	flags.DurationVar(&o.move.keep, "move-former-copy-ttl", kubemove.Grace, "time for which a pod must have used a moved volume before its former copy is deleted")
	flags.DurationVar(&o.shutdownGrace, "shutdown-timeout", 9*time.Minute, "time to wait for running LVM commands after SIGTERM")
	flags.StringVar(&o.logLevel, "log-level", "info", "log level: debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "log format: json or console")
}

// check validates the flags before the driver starts anything.
func (o *options) check() error {
	switch {
	case o.nodeName == "":
		return errors.New("--node-name is empty; set it, or the environment variable NODE_NAME")
	case o.standalone && o.clusterID == "":
		return errors.New("--standalone requires --cluster-id: without an API server the driver cannot read it")
	case o.apiProxy != "" && o.standalone:
		return errors.New("--api-proxy-address does not go with --standalone: there is no API server")
	case o.apiProxy != "" && !isLoopback(o.apiProxy):
		return fmt.Errorf("--api-proxy-address is %q; set it to a loopback address and a port, as 127.0.0.1:9811", o.apiProxy)
	case o.prepareEvery < 0:
		return fmt.Errorf("--device-scan-interval is %s; set it to 0 or to a positive duration", o.prepareEvery)
	case o.emptyPoolsFor < 0:
		return fmt.Errorf("--empty-thin-pool-ttl is %s; set it to 0 or to a positive duration", o.emptyPoolsFor)
	case o.volumeLimit < 0:
		return fmt.Errorf("--max-volumes-per-node is %d; set it to 0 for no limit, or to a positive number", o.volumeLimit)
	}
	_, err := o.socket()
	return errors.Join(err, o.move.check(o.standalone))
}

// socket returns the path of --endpoint.
func (o *options) socket() (string, error) {
	path, ok := strings.CutPrefix(o.endpoint, "unix://")
	if !ok || !filepath.IsAbs(path) {
		return "", fmt.Errorf("--endpoint is %q; set it to a Unix socket, as unix:///absolute/path", o.endpoint)
	}
	return path, nil
}
