package nodegroup

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/cluster"
)

// simulation is a cluster with one node group and one class, in which a test lets time pass.
type simulation struct {
	t          *testing.T
	now        time.Time
	nodes      map[string]*corev1.Node
	volumes    map[string]*cluster.Volume               // by node
	capacities map[string]*storagev1.CSIStorageCapacity // by name
	view       *view
}

func newSimulation(t *testing.T) *simulation {
	t.Helper()
	s := &simulation{t: t, now: time.Now().Truncate(time.Second), nodes: map[string]*corev1.Node{}, volumes: map[string]*cluster.Volume{},
		capacities: map[string]*storagev1.CSIStorageCapacity{}}
	s.restart()
	return s
}

// restart makes the Publisher forget what it has not written.
func (s *simulation) restart() { s.view = newView() }

// join adds a Node that is created now, and the capacity that it publishes.
func (s *simulation) join(name, machine, size string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name + s.now.Format(time.TimeOnly)), CreationTimestamp: metav1.Time{Time: s.now}, Labels: map[string]string{"pool": "nvme"},
	}}
	n.Status.NodeInfo.SystemUUID = machine
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s.nodes[name] = n
	s.publish(name, size)
	return n
}

func (s *simulation) publish(name, size string) {
	q := resource.MustParse(size)
	s.capacities["of-"+name] = &storagev1.CSIStorageCapacity{
		ObjectMeta:   metav1.ObjectMeta{Name: "of-" + name, Namespace: "ns"},
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{api.TopologyKey: name}}, StorageClassName: "local", Capacity: &q, MaximumVolumeSize: &q,
	}
}

func (s *simulation) leave(name string) {
	delete(s.nodes, name)
	delete(s.capacities, "of-"+name)
}

// volume is a PersistentVolume on a node.
func volume(node string) *cluster.Volume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "on-" + node}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: api.DriverName}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
	return cluster.VolumeOf(pv)
}

// use creates a volume on a node, which leaves so much.
func (s *simulation) use(name, leaves string) {
	s.volumes[name] = volume(name)
	s.publish(name, leaves)
}

// deletePV deletes the node's PersistentVolume; the capacity stays until the test publishes another.
func (s *simulation) deletePV(name string) { delete(s.volumes, name) }

// expect lets time pass, in rounds of half a minute, and compares the group's capacity in each round.
func (s *simulation) expect(d time.Duration, want string) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(settled)
		if got := s.round(); got != want {
			s.t.Fatalf("got %q, want %q, %s before the end", got, want, end.Sub(s.now))
		}
	}
}

// pass lets time pass, in rounds of half a minute.
func (s *simulation) pass(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); s.round() {
		s.now = s.now.Add(settled)
	}
}

// round returns the group's capacity after a round of the Publisher; "": there is none.
func (s *simulation) round() (capacity string) {
	s.t.Helper()
	st := s.state()
	for name := range st.existing {
		delete(s.capacities, name)
	}
	for name, o := range templates([]Group{{Name: "nvme", Labels: map[string]string{"pool": "nvme"}}}, st, "ns") {
		s.capacities[name] = o
		capacity += o.Capacity.String()
	}
	return capacity
}

// state returns what the Publisher decides from now.
func (s *simulation) state() state {
	capacities := func(yield func(*cluster.Capacity) bool) {
		for _, c := range s.capacities {
			if !yield(cluster.CapacityOf(c)) {
				return
			}
		}
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local", UID: "1"}, Provisioner: api.DriverName}
	return s.view.state(facts{maps.Values(s.nodes), maps.Values(s.volumes), slices.Values([]*storagev1.StorageClass{class}), capacities}, s.now)
}

// started is a simulation in which the node a is older than the Publisher and empty, and the group has learned its 800Gi.
func started(t *testing.T) *simulation {
	t.Helper()
	s := newSimulation(t)
	s.join("a", "machine-a", "800Gi")
	s.pass(time.Minute)
	s.expect(time.Minute, "800Gi")
	return s
}

// TestCapacityOfEmptiedNode: a node whose volumes are deleted has less than a new one while the driver wipes them, and for ever if
// a snapshot or an orphan remains. It does not lower the group's capacity.
func TestCapacityOfEmptiedNode(t *testing.T) {
	s := started(t)
	s.use("a", "100Gi")
	s.expect(time.Minute, "800Gi")
	s.deletePV("a")
	s.expect(10*time.Minute, "800Gi")
	s.use("a", "50Gi")
	s.expect(time.Minute, "800Gi")
	s.deletePV("a")
	s.restart()
	s.expect(10*time.Minute, "800Gi")
}

// TestCapacityOfReducedNode: if the group learns from such a node first, another node raises it, also an older one, and also one in
// use.
func TestCapacityOfReducedNode(t *testing.T) {
	s := newSimulation(t)
	s.join("a", "machine-a", "600Gi")
	s.volumes["a"] = volume("a")
	s.now = s.now.Add(time.Second)
	s.join("b", "machine-b", "100Gi")
	s.pass(2 * time.Minute)
	s.expect(time.Minute, "600Gi")
	s.publish("b", "800Gi") // the end of a wipe, or of the time for which the driver keeps an empty thin pool
	s.pass(time.Minute)
	s.expect(time.Minute, "800Gi")
}

// TestCapacityOfLateDisk: a new node has less than the next one until the driver finds all its disks. Meanwhile it does not lower
// the group's capacity, and it raises it afterwards although it has a volume then.
func TestCapacityOfLateDisk(t *testing.T) {
	s := started(t)
	s.join("b", "machine-b", "400Gi")
	s.expect(5*time.Minute, "800Gi")
	s.use("b", "350Gi")
	s.expect(10*time.Minute, "800Gi")
	s.publish("b", "750Gi")
	s.expect(time.Minute, "800Gi")

	s = newSimulation(t)
	s.join("a", "machine-a", "400Gi")
	s.pass(time.Minute)
	s.expect(time.Minute, "400Gi")
	s.use("a", "750Gi")
	s.pass(time.Minute)
	s.expect(time.Minute, "750Gi")
}

// TestCapacityOfSmallerMachines: the capacity of a new node that has never had a volume replaces that of older nodes, also after
// a restart, and also if the machine was replaced under the same name.
func TestCapacityOfSmallerMachines(t *testing.T) {
	s := started(t)
	s.now = s.now.Add(time.Second)
	s.join("b", "machine-b", "400Gi")
	s.expect(steady-time.Minute, "800Gi")
	s.pass(2 * time.Minute)
	s.expect(time.Minute, "400Gi")
	s.restart()
	s.expect(10*time.Minute, "400Gi")
	s.leave("b")
	s.expect(10*time.Minute, "400Gi")

	s.leave("a")
	s.expect(time.Minute, "400Gi")
	s.join("a", "another-machine", "200Gi")
	s.pass(steady + time.Minute)
	s.expect(time.Minute, "200Gi")
	s.now = s.now.Add(time.Second)
	s.join("c", "machine-c", "1Ti")
	s.pass(time.Minute)
	s.expect(10*time.Minute, "1Ti")
}

// TestNodesThatLowerNoCapacity: a node may have less than the next one if it is not known from its first registration, had a
// volume, or has no disks yet.
func TestNodesThatLowerNoCapacity(t *testing.T) {
	for name, prepare := range map[string]func(*simulation){
		"older than the Publisher": func(s *simulation) {
			s.join("b", "machine-b", "400Gi")
			s.restart()
		},
		"older than the Publisher, and not Ready when it starts": func(s *simulation) {
			b := s.join("b", "machine-b", "400Gi")
			b.Status.Conditions[0].Status = corev1.ConditionUnknown
			s.restart()
			s.pass(time.Minute)
			b.Status.Conditions[0].Status = corev1.ConditionTrue
		},
		"with a volume between two rounds": func(s *simulation) {
			s.join("b", "machine-b", "800Gi")
			s.pass(time.Minute)
			s.view.use(nil, volume("b"))
			s.view.use(volume("b"), nil)
			s.publish("b", "400Gi")
		},
		"registers again after its volumes were released": func(s *simulation) {
			s.join("b", "machine-b", "800Gi")
			s.pass(time.Minute)
			s.use("b", "400Gi")
			s.pass(time.Minute)
			s.leave("b")
			s.deletePV("b")
			s.pass(time.Hour)
			s.join("b", "machine-b", "400Gi")
		},
		"without disks": func(s *simulation) { s.join("b", "machine-b", "0") },
		"the one that the capacity is from": func(s *simulation) {
			s.join("b", "machine-b", "800Gi")
			s.pass(steady + time.Minute)
			s.publish("b", "400Gi")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t)
			s.now = s.now.Add(time.Second)
			prepare(s)
			s.expect(20*time.Minute, "800Gi")
		})
	}
}

// TestCapturedNodeRaisesCapacityUntilTheNextNode: a captured node can publish any capacity, and the group learns it. The next node
// that is without a volume for long enough ends that, and the captured one cannot repeat it, nor can any older node.
func TestCapturedNodeRaisesCapacityUntilTheNextNode(t *testing.T) {
	s := started(t)
	s.now = s.now.Add(time.Second)
	s.join("captured", "machine-c", "1Pi")
	s.pass(time.Minute)
	s.expect(time.Minute, "1Pi")
	s.now = s.now.Add(time.Second)
	s.join("next", "machine-n", "800Gi")
	s.expect(steady-time.Minute, "1Pi")
	s.pass(2 * time.Minute)
	s.publish("captured", "2Pi")
	s.publish("a", "3Pi")
	s.expect(20*time.Minute, "800Gi")
	s.use("next", "100Gi")
	s.restart()
	s.expect(20*time.Minute, "800Gi")

	s = started(t)
	s.now = s.now.Add(time.Second)
	s.join("captured", "machine-c", "1Pi")
	s.pass(time.Minute)
	s.leave("captured")
	s.expect(time.Hour, "1Pi")
	s.join("next", "machine-n", "800Gi")
	s.pass(steady + time.Minute)
	s.expect(time.Hour, "800Gi")
}

// TestCapturedNodeLowersCapacityUntilTheNextNode: a captured node that has never had a volume can lower the capacity, too.
func TestCapturedNodeLowersCapacityUntilTheNextNode(t *testing.T) {
	s := started(t)
	s.now = s.now.Add(time.Second)
	s.join("captured", "machine-c", "1Mi")
	s.pass(steady + time.Minute)
	s.expect(time.Hour, "1Mi")
	s.join("next", "machine-n", "800Gi")
	s.pass(time.Minute)
	s.expect(time.Hour, "800Gi")
}

// TestCapacityIsNewWhenItArrives: a group learns no capacity, new or changed, in the first round that reads it.
func TestCapacityIsNewWhenItArrives(t *testing.T) {
	s := newSimulation(t)
	s.round()
	s.join("a", "machine-a", "100Gi")
	for _, size := range []string{"100Gi", "200Gi"} { // a new object, and a new version
		s.publish("a", size)
		if got := s.round(); got != "" {
			t.Errorf("learned %s, which arrived at that moment", got)
		}
		s.now = s.now.Add(settled)
	}
}

// TestMachinesAreForgotten: what a Publisher remembers does not grow with each node of the past.
func TestMachinesAreForgotten(t *testing.T) {
	s := started(t)
	s.join("b", "machine-b", "1Gi")
	s.round()
	s.leave("b")
	s.now = s.now.Add(remembered + time.Minute)
	s.round()
	if _, there := s.view.memory.machines["b machine-b"]; there || len(s.view.memory.machines) != 1 || len(s.view.memory.published) != 1 {
		t.Errorf("remembered: %v, %v", s.view.memory.machines, s.view.memory.published)
	}
}

func TestOriginIsReadAsWritten(t *testing.T) {
	for _, want := range []origin{{}, {"node-1", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "1b4e28ba-2fa1-11d2-883f-0016d3cca427"}} {
		if got := parseOrigin(want.String()); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	for _, text := range []string{"node-1", "node-1 yesterday uid", "a b c d"} {
		if got := parseOrigin(text); got != (origin{}) {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
