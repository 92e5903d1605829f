package nodegroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// empty returns a node of the pool nvme that was created age minutes before noon, and capacityOn a capacity that a node published
// an hour before noon.
func empty(name string, age int) node {
	created := noon.Add(-time.Duration(age) * time.Minute)
	return node{origin: origin{name, created, types.UID("uid-" + name)}, labels: map[string]string{"pool": "nvme", "zone": "a"}, ready: true}
}

func capacityOn(name, size string) published {
	q := resource.MustParse(size)
	return published{class: "local", node: name, size: &q, most: &q, since: noon.Add(-time.Hour)}
}

// oneNode is a cluster with one empty node and its capacity.
func oneNode() state {
	return state{now: noon, nodes: []node{empty("a", 60)}, published: []published{capacityOn("a", "10Gi")}, classes: []class{{"local", "1"}}}
}

// TestLearnedCapacity checks the capacity that a group learns for the class local before it has learned any.
func TestLearnedCapacity(t *testing.T) {
	second := func(size string) func(*state) {
		return func(s *state) {
			s.nodes = append(s.nodes, empty("b", 5))
			s.published = append(s.published, capacityOn("b", size))
		}
	}
	for name, test := range map[string]struct {
		change func(*state)
		want   string // "": nothing
	}{
		"one empty node":              {func(*state) {}, "10Gi"},
		"the newest is larger":        {second("20Gi"), "20Gi"},
		"the newest is smaller":       {second("5Gi"), "10Gi"}, // it may not be empty
		"the newest is not prepared":  {second("0"), "10Gi"},
		"no empty node has any":       {func(s *state) { s.published[0] = capacityOn("a", "0") }, "0"},
		"in use":                      {func(s *state) { s.nodes[0].used = true }, ""},
		"of another group":            {func(s *state) { s.nodes[0].labels = map[string]string{"pool": "hdd"} }, ""},
		"without the label":           {func(s *state) { s.nodes[0].labels = nil }, ""},
		"of another class":            {func(s *state) { s.published[0].class = "other" }, ""},
		"without a value":             {func(s *state) { s.published[0].size = nil }, ""},
		"not Ready":                   {func(s *state) { s.nodes[0].ready = false }, ""},
		"no node":                     {func(s *state) { s.nodes = nil }, ""},
		"changed a moment ago":        {func(s *state) { s.published[0].since = noon.Add(-settled + time.Second) }, ""},
		"changed half a minute ago":   {func(s *state) { s.published[0].since = noon.Add(-settled) }, "10Gi"},
		"a capacity without its node": {func(s *state) { s.published[0].node = "gone" }, ""},
		"two objects for one node":    {func(s *state) { s.published = append(s.published, capacityOn("a", "30Gi"), capacityOn("a", "20Gi")) }, "30Gi"},
		"the largest volume counts": {func(s *state) {
			second("20Gi")(s)
			most := resource.MustParse("9Gi")
			s.published[1].most = &most
		}, "10Gi"},
	} {
		s := oneNode()
		test.change(&s)
		got := ""
		for _, o := range templates([]Group{{Name: "nvme", Labels: map[string]string{"pool": "nvme"}}}, s, "ns") {
			got += o.Capacity.String()
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestTemplates: a declared capacity overrides a learned one, a learned one stays when the node is no longer empty, and a deleted
// class or group has no object.
func TestTemplates(t *testing.T) {
	groups := []Group{{Name: "nvme", Labels: map[string]string{"pool": "nvme"}, Capacity: map[string]resource.Quantity{"declared": resource.MustParse("5Gi")}}}
	s := oneNode()
	s.classes = append(s.classes, class{"declared", "2"})
	first := templates(groups, s, "ns")
	if len(first) != 2 {
		t.Fatalf("got %d objects, want one for each class", len(first))
	}
	for name, o := range first {
		want := map[string]string{"local": "10Gi", "declared": "5Gi"}[o.StorageClassName]
		if o.Name != name || o.Namespace != "ns" || o.Capacity.String() != want || o.MaximumVolumeSize.String() != want {
			t.Errorf("class %s: got %s, want %s", o.StorageClassName, o.Capacity, want)
		}
		if got := o.NodeTopology.MatchLabels; len(got) != 2 || got["pool"] != "nvme" || got[api.LabelTemplateNode] != "true" {
			t.Errorf("topology %v", got)
		}
		if owner := o.OwnerReferences; len(owner) != 1 || owner[0].Kind != "StorageClass" || owner[0].Name != o.StorageClassName || owner[0].UID == "" {
			t.Errorf("owners %v", owner)
		}
		if o.Labels["csi.storage.k8s.io/managed-by"] != "" {
			t.Error("a csi-provisioner would manage the object")
		}
	}
	s.nodes[0].used, s.existing = true, first
	if again := templates(groups, s, "ns"); len(again) != 2 {
		t.Errorf("%d objects while no node is empty, want 2", len(again))
	}
	groups[0].Capacity = nil
	for _, o := range templates(groups, s, "ns") {
		if want := first[o.Name]; !isSame(want, o) {
			t.Errorf("class %s: got %s and %v, want what it was", o.StorageClassName, o.Capacity, o.Annotations)
		}
	}
	s.nodes[0].used, s.published = false, append(s.published, capacityOn("a", "1Gi"))
	s.published[1].class = "declared"
	for _, o := range templates(groups, s, "ns") {
		if o.StorageClassName == "declared" && o.Capacity.String() != "1Gi" {
			t.Errorf("got %s, want what was learned in place of what was declared", o.Capacity)
		}
	}
	s.nodes[0].used, s.classes[0].uid = true, "3"
	if again := templates(groups, s, "ns"); len(again) != 1 {
		t.Errorf("%d objects for a class that was made again, want that of the other class alone", len(again))
	}
	if left := templates(nil, s, "ns"); len(left) != 0 {
		t.Errorf("%d objects without a group", len(left))
	}
	if len(groups[0].Labels) != 1 {
		t.Errorf("the group's labels were changed: %v", groups[0].Labels)
	}
}

// TestIsSame: equal sizes in different notations need no update.
func TestIsSame(t *testing.T) {
	a, b, c := resource.MustParse("1Gi"), resource.MustParse("1024Mi"), resource.MustParse("2Gi")
	of := func(size, most *resource.Quantity) *storagev1.CSIStorageCapacity {
		return &storagev1.CSIStorageCapacity{Capacity: size, MaximumVolumeSize: most}
	}
	if !isSame(of(&a, nil), of(&b, nil)) || isSame(of(&a, nil), of(&a, &a)) || isSame(of(&a, &a), of(&c, &a)) {
		t.Error("sizes are compared wrongly")
	}
}

// TestRenamedGroup: the object of a group that is renamed gets the new name as its label, and keeps its learned capacity.
func TestRenamedGroup(t *testing.T) {
	labels := map[string]string{"pool": "nvme"}
	s := oneNode()
	s.existing = templates([]Group{{Name: "old", Labels: labels}}, s, "ns")
	s.nodes[0].used = true
	renamed := templates([]Group{{Name: "new", Labels: labels}}, s, "ns")
	if len(renamed) != 1 {
		t.Fatalf("%d objects, want 1", len(renamed))
	}
	for name, o := range renamed {
		if was := s.existing[name]; was == nil || isSame(was, o) || o.Labels[api.LabelNodeGroup] != "new" || !isEqual(was.Capacity, o.Capacity) {
			t.Errorf("got %v and %s instead of %v: want an update of the label alone", o.Labels, o.Capacity, was)
		}
	}
}

func TestRead(t *testing.T) {
	for text, says := range map[string]string{
		`nodeGroups: [{name: a, labels: {pool: a}, capacity: {local: 1Gi}}]`:       "",
		`nodeGroups: [{name: a, labels: {pool: a}}, {name: a, labels: {pool: b}}]`: `named "a"`,
		`nodeGroups: [{name: a, labels: {pool: a}}, {name: b, labels: {pool: a}}]`: "same labels",
		`nodeGroups: [{name: a}]`:                                                                   "no labels",
		`nodeGroups: [{name: A, labels: {pool: a}}]`:                                                "invalid name",
		`nodeGroups: [{name: a, labels: {"po ol": a}}]`:                                             "invalid label",
		`nodeGroups: [{name: a, labels: {pool: "a b"}}]`:                                            "invalid label",
		`nodeGroups: [{name: a, labels: {topology.nodelvm.io/node: a}}]`:                            "distinguishes no node group",
		`nodeGroups: [{name: a, labels: {cluster-autoscaler.kubernetes.io/template-node: "true"}}]`: "distinguishes no node group",
		`nodeGroups: [{name: a, labels: {pool: a}, capacity: {local: -1Gi}}]`:                       "0 or more",
		`nodeGroups: [{name: a, labels: {pool: a}, capacity: {local: much}}]`:                       "quantities",
		`nodeGroups: [{name: a, labels: {pool: a}, maximum: {local: 1Gi}}]`:                         "maximum",
	} {
		path := filepath.Join(t.TempDir(), "groups.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		groups, err := Read(path)
		switch {
		case says == "" && (err != nil || len(groups) != 1):
			t.Errorf("%s: %v, %v", text, groups, err)
		case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
			t.Errorf("%s: got %v, want %q", text, err, says)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file is no error")
	}
}
