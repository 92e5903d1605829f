package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodelvm/nodelvm/controller"
	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/report"
)

// adoptOptions are the flags of `nodelvm adopt`.
type adoptOptions struct {
	adminOptions
	all    bool
	tag    bool
	claim  string
	class  string
	fsType string
	block  bool
	policy string
	key    string
}

func (o *adoptOptions) bind(flags *pflag.FlagSet) {
	o.adminOptions.bind(flags)
	flags.BoolVar(&o.all, "all", false, "adopt every unreferenced volume with its former claim, for example after the loss of the cluster's objects")
	flags.BoolVar(&o.tag, "tag", false, "tag an unmanaged logical volume as managed before adopting it: from then on the driver manages it")
	flags.StringVar(&o.claim, "claim", "", "also print a claim that is bound to the volume, as NAMESPACE/NAME")
	flags.StringVar(&o.class, "storage-class", "", "storage class of the PersistentVolume and the claim")
	flags.StringVar(&o.fsType, "fstype", "", "file system type (default: the one on the volume)")
	flags.BoolVar(&o.block, "block", false, "adopt a raw block volume")
	flags.StringVar(&o.key, "key-secret", "", "Secret with the key of an encrypted volume, as NAMESPACE/NAME; it may contain ${pvc.namespace} and ${pvc.name}, of the claim")
	flags.StringVar(&o.policy, "reclaim-policy", string(corev1.PersistentVolumeReclaimRetain), "reclaim policy of the PersistentVolume: Retain or Delete")
}

func (o *adoptOptions) check(volumes []string) error {
	switch {
	case o.all == (len(volumes) == 1):
		return errors.New("give one volume as GROUP/VOLUME, or --all")
	case o.all && (o.tag || o.claim != ""):
		return errors.New("--tag and --claim require one volume, not --all")
	case o.block && o.fsType != "":
		return errors.New("a raw block volume has no file system: give --block or --fstype, not both")
	case o.policy != string(corev1.PersistentVolumeReclaimRetain) && o.policy != string(corev1.PersistentVolumeReclaimDelete):
		return fmt.Errorf("--reclaim-policy is %q; set it to Retain or Delete", o.policy)
	}
	return nil
}

func adoptCommand() *cobra.Command {
	var o adoptOptions
	cmd := &cobra.Command{
		Use:   "adopt GROUP/VOLUME | --all",
		Short: "Print the manifests that adopt a volume, for kubectl apply (run it in the driver's container)",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			a, err := o.open(cmd.Context())
			if err != nil {
				return err
			}
			text, err := o.adopt(cmd.Context(), a, args)
			cmd.Print(text)
			return err
		},
	}
	o.bind(cmd.Flags())
	return cmd
}

func (o *adoptOptions) adopt(ctx context.Context, a *adminSession, args []string) (string, error) {
	if !o.all {
		v, err := o.find(ctx, a, args[0])
		if err != nil {
			return "", err
		}
		if err := notMoving(v); err != nil {
			return "", err
		}
		if err := a.unheld(ctx, v); err != nil {
			return "", err
		}
		return o.manifests(ctx, a, v, o.claim)
	}
	found, err := a.orphans(ctx)
	if err != nil {
		return "", err
	}
	return adoptAll(found, func(orphan kube.Orphan) (string, error) { return o.manifests(ctx, a, orphan.Volume, orphan.Claim) })
}

// adoptAll returns the manifests of each orphan, with its former claim. It skips orphans that share a claim, because only an
// admin can choose one: the claim would get any of them, and its pod would write to data that may be outdated.
func adoptAll(found []kube.Orphan, manifests func(kube.Orphan) (string, error)) (text string, err error) {
	found = slices.DeleteFunc(found, func(o kube.Orphan) bool { return o.Reason != report.ReasonUnreferenced || o.Snapshot })
	of := map[string][]string{} // volumes by claim
	for _, orphan := range found {
		of[orphan.Claim] = append(of[orphan.Claim], string(orphan.Group)+"/"+orphan.ID.LV)
	}
	var failed []error
	for _, orphan := range found {
		if rivals := of[orphan.Claim]; orphan.Claim != "" && len(rivals) > 1 {
			failed = append(failed, fmt.Errorf("%s/%s is not adopted: the claim %s had several volumes (%s); find the latest (lvs -o+lv_time), and adopt it by its name with --claim %s",
				orphan.Group, orphan.ID.LV, orphan.Claim, strings.Join(rivals, ", "), orphan.Claim))
			continue
		}
		one, err := manifests(orphan)
		text += one
		failed = append(failed, err)
	}
	return text, errors.Join(failed...)
}

// find returns the volume that the admin names, and, with --tag, first tags it as managed.
func (o *adoptOptions) find(ctx context.Context, a *adminSession, path string) (lvm.Volume, error) {
	vg, lv, ok := strings.Cut(strings.TrimPrefix(path, "/dev/"), "/")
	group := lvm.VGName(vg)
	if !ok {
		return lvm.Volume{}, fmt.Errorf("%q names no volume; give GROUP/VOLUME, as lvs shows them", path)
	}
	holdings, err := a.host.ManagedVolumes(ctx)
	if err != nil {
		return lvm.Volume{}, err
	}
	i := slices.IndexFunc(holdings.Owned, func(v lvm.ManagedVolume) bool { return v.Group == group && v.ID.LV == lv })
	switch {
	case i < 0 && o.tag:
		return a.host.Adopt(ctx, group, lv, volumeName(a.nodeName, group, lv), o.claim)
	case i < 0:
		return lvm.Volume{}, fmt.Errorf("%s/%s is not a volume of nodelvm; with --tag it becomes one", group, lv)
	case holdings.Owned[i].Foreign:
		return lvm.Volume{}, fmt.Errorf("%s/%s belongs to the cluster %q: to adopt all volumes of that cluster, give the drivers its UID (the chart's value clusterID)",
			group, lv, holdings.Owned[i].Cluster)
	case holdings.Owned[i].Snapshot:
		return lvm.Volume{}, fmt.Errorf("%s/%s is a snapshot: create a VolumeSnapshotContent with the handle %s", group, lv, holdings.Owned[i].ID)
	}
	return holdings.Owned[i].Volume, nil
}

// notMoving refuses a former copy, and a volume between the deletion of one PersistentVolume and the creation of the next: a second one would lead to
// the same data.
func notMoving(v lvm.Volume) error {
	switch {
	case v.State == lvm.StateMoved:
		return fmt.Errorf("%s/%s is the former copy of a volume that moved to another node. If the data there is lost, this one can become the volume again: docs/howto/move.md", v.Group, v.ID.LV)
	case v.Record == "" && !v.State.IsMove():
		return nil
	}
	return fmt.Errorf("%s/%s is moving to another node, or came from one a moment ago: the drivers create its PersistentVolume again", v.Group, v.ID.LV)
}

// unheld refuses a volume that has a PersistentVolume: a second one, or another claim in the first, could lead to the deletion
// of the volume while a pod uses it.
func (a *adminSession) unheld(ctx context.Context, v lvm.Volume) error {
	search := kube.OrphanSearch{Client: a.client}
	holder, err := search.Holder(ctx, v)
	if err != nil || holder == "" {
		return err
	}
	return fmt.Errorf("%s/%s has the PersistentVolume %s already; if that is Released, and its claim is not coming back, free it for another one: "+
		"kubectl patch pv %s --type json -p '[{\"op\": \"remove\", \"path\": \"/spec/claimRef\"}]'", v.Group, v.ID.LV, holder, holder)
}

// volumeName returns the name of the PersistentVolume of an admin's volume: the names of its group and of the volume, if
// Kubernetes allows them, and a suffix. The suffix distinguishes it from volumes of the same name on other nodes, because a
// PersistentVolume's name is unique in the cluster.
func volumeName(node string, group lvm.VGName, lv string) string {
	sum := sha256.Sum256([]byte(node + "/" + string(group) + "/" + lv))
	name := string(group) + "-" + lv + "-" + hex.EncodeToString(sum[:4])
	if len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	return "adopted-" + hex.EncodeToString(sum[:8])
}

func (o *adoptOptions) manifests(ctx context.Context, a *adminSession, v lvm.Volume, claim string) (string, error) {
	fsType := o.fsType
	key, err := o.keySecret(v, claim)
	if err != nil {
		return "", err
	}
	if !o.block && fsType == "" {
		if v.Class.Encryption != lvm.EncryptionNone {
			return "", fmt.Errorf("%s/%s is encrypted, so its file system cannot be found: give --fstype, or --block for a raw block volume", v.Group, v.ID.LV)
		}
		device, err := a.host.Activate(ctx, v.ID, v.UUID)
		if err != nil {
			return "", err
		}
		found, err := filesystem.Detect(device)
		if err != nil {
			return "", err
		}
		if found == "" {
			return "", fmt.Errorf("found no file system on %s/%s: give --block for a raw block volume, or --fstype for a blank volume to format", v.Group, v.ID.LV)
		}
		fsType = found
	}
	if !o.block {
		if err := filesystem.CheckOptions(fsType, ""); err != nil {
			return "", err
		}
	}
	return kube.Manifests(kube.Adoption{
		Volume: v, Attributes: controller.Attributes(v), Node: a.nodeName, Claim: claim, Class: o.class, FSType: fsType,
		Policy: corev1.PersistentVolumeReclaimPolicy(o.policy), Key: key,
	})
}

// keySecret returns the Secret of an encrypted volume; nil for a volume without encryption.
func (o *adoptOptions) keySecret(v lvm.Volume, claim string) (*corev1.SecretReference, error) {
	if v.Class.Encryption == lvm.EncryptionNone {
		return nil, nil
	}
	claimNamespace, claimName, _ := strings.Cut(claim, "/")
	namespace, name, _ := strings.Cut(strings.NewReplacer("${pvc.namespace}", claimNamespace, "${pvc.name}", claimName).Replace(o.key), "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, fmt.Errorf("%s/%s is encrypted: name the Secret with its key by --key-secret NAMESPACE/NAME (given: %q)", v.Group, v.ID.LV, o.key)
	}
	return &corev1.SecretReference{Namespace: namespace, Name: name}, nil
}
