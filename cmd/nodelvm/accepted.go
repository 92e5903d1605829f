package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
)

// acceptedFile is the file in the state directory with the node's record of accepted physical volumes.
const acceptedFile = "accepted.json"

// acceptedOptions are the flags that determine which physical volumes the driver believes; all commands on a node need the same.
type acceptedOptions struct {
	stateDir    string
	kubeletDir  string
	devicesFile string
}

func (o *acceptedOptions) bind(flags *pflag.FlagSet) {
	o.bindStateDir(flags)
	flags.StringVar(&o.kubeletDir, "kubelet-dir", kubeletDir(), "root directory of the kubelet, which shows the volumes of pods and the node's storage drivers (default: environment variable "+kubeletDirVariable+", or else "+defaultKubeletDir+")")
	bindDevicesFile(flags, &o.devicesFile)
}

// withEnvironment is for a command that leaves the rest to the driver, whose environment it has.
func (o acceptedOptions) withEnvironment() acceptedOptions {
	return acceptedOptions{o.stateDir, kubeletDir(), os.Getenv(devicesFileVariable)}
}

func kubeletDir() string { return cmp.Or(os.Getenv(kubeletDirVariable), defaultKubeletDir) }

func (o *acceptedOptions) bindStateDir(flags *pflag.FlagSet) {
	flags.StringVar(&o.stateDir, "state-dir", "/var/lib/nodelvm", "host directory with the record of accepted physical volumes")
}

// Environment variables of the driver's pod.
const (
	kubeletDirVariable  = "KUBELET_DIR"
	devicesFileVariable = "HOST_DEVICES_FILE"
)

// defaultKubeletDir is the kubelet's root directory if its configuration names no other (kubelet --root-dir).
const defaultKubeletDir = "/var/lib/kubelet"

func bindDevicesFile(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "host-devices-file", os.Getenv(devicesFileVariable), "the host's LVM devices file, whose entries are accepted as physical volumes (default: environment variable "+devicesFileVariable+"); empty: none")
}

func (o acceptedOptions) config() lvm.Accepted {
	return lvm.Accepted{File: filepath.Join(o.stateDir, acceptedFile), KubeletDir: o.kubeletDir, Driver: api.DriverName, DevicesFile: o.devicesFile}
}

// onAnyMachine is config for a command that also runs on machines without a kubelet, outside of the driver's pod.
func (o acceptedOptions) onAnyMachine() lvm.Accepted {
	c := o.config()
	if _, err := os.Stat(c.KubeletDir); errors.Is(err, fs.ErrNotExist) && os.Getenv(kubeletDirVariable) == "" {
		c.KubeletDir = ""
	}
	return c
}

// disksDir is the LVM_SYSTEM_DIR of these commands.
const disksDir = "/run/nodelvm/disks"

func disksCommand() *cobra.Command {
	var o acceptedOptions
	lockDir := ""
	onHost := func(run func(cmd *cobra.Command, h *host.Host, args []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			h, err := host.NewHost(lvm.Config{SystemDir: disksDir, LockDir: lockDir, Accepted: o.onAnyMachine(), AdminCLI: true})
			if err != nil {
				return err
			}
			return run(cmd, h, args)
		}
	}
	cmd := &cobra.Command{
		Use:   "disks",
		Short: "List the physical volumes that this node's record accepts, and those that the driver ignores (run it in the driver's container)",
		Args:  cobra.NoArgs,
		RunE:  onHost(listDisks),
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "accept DEVICE...",
		Short: "Accept the physical volumes on disks of this node: the driver uses their volume groups from now on",
		Args:  cobra.MinimumNArgs(1),
		RunE:  onHost(acceptDisks),
	}, &cobra.Command{
		Use:   "forget PV-UUID...",
		Short: "Forget accepted physical volumes, before their disks go to another owner",
		Args:  cobra.MinimumNArgs(1),
		RunE:  onHost(forgetDisks),
	})
	o.bind(cmd.PersistentFlags())
	cmd.PersistentFlags().StringVar(&lockDir, "lock-dir", "/run/lock/lvm", "directory of the host's LVM locks (lvm.conf: locking_dir)")
	return cmd
}

func acceptDisks(cmd *cobra.Command, h *host.Host, devices []string) error {
	for _, device := range devices {
		pv, err := h.AcceptDevice(cmd.Context(), device)
		if err != nil {
			return err
		}
		cmd.Printf("%s: accepted physical volume %s\n", device, pv)
	}
	return nil
}

func forgetDisks(cmd *cobra.Command, h *host.Host, pvs []string) error {
	for _, pv := range pvs {
		if err := h.ForgetPV(cmd.Context(), pv); err != nil {
			return err
		}
		cmd.Printf("forgot physical volume %s\n", pv)
	}
	return nil
}

func listDisks(cmd *cobra.Command, h *host.Host, _ []string) error {
	entries, ignored, err := h.AcceptedPVs(cmd.Context())
	if err != nil {
		return err
	}
	return printDisks(cmd.OutOrStdout(), entries, ignored)
}

func printDisks(out io.Writer, entries []lvm.AcceptedPV, ignored []lvm.UnacceptedPV) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	text := "DEVICE\tVG\tPV UUID\tIDENTITY\tACCEPTED\n"
	for _, e := range entries {
		text += fmt.Sprintf("%s\t%s\t%s\t%s\t%s\n", e.Device, cmp.Or(string(e.Group), "-"), cmp.Or(e.PV, "-"), e.Identity, e.Reason)
	}
	for _, u := range ignored {
		text += fmt.Sprintf("%s\t-\t%s\t%s\tno: %s\n", u.Device, u.PV, u.Identity, u.Reason)
	}
	_, err := io.WriteString(table, text)
	return errors.Join(err, table.Flush())
}
