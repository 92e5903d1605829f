package hostile

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	tenantsNamespace = "hostile"
	objects          = 500 // the sum of the kinds
	snapshotQuota    = 110 // the kinds take 80
)

var (
	claimKind = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	podKind   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// fields is a part of an object.
type fields = map[string]any

// kind is malicious objects of one intention.
type kind struct {
	name  string // of the first object, without its number
	count int
	make  func(i int) *unstructured.Unstructured // without a name
}

// kinds returns the malicious objects. No quota counts the bytes of an object, what an annotation says, or a name that a field has.
func kinds() []kind {
	return append(claimKinds(), append(sourceKinds(), append(snapshotKinds(), podKinds()...)...)...)
}

// junk is text that a log, a terminal, a shell, a path or a format could take for its own.
var junk = []string{
	"\x1b[2J\x1b[31mforged\x1b[0m", "a\n{\"level\":\"ERROR\",\"msg\":\"forged\"}\r\n", "\u202egnp.exe\u2066", "%s%n%x%!d(string=x)", "'; reboot #", "$(reboot)`reboot`",
	"../../../../etc/shadow", "nul\x00byte", "//..//kube-system/secrets", strings.Repeat("\u00e9", 4000), "vg-data/nodelvm-thin", "@fast --config global/abort=1",
}

// selectedNode returns one node of the lab after the other.
func selectedNode(i int) string { return fmt.Sprintf("node-%d", i%3+1) }

func claimKinds() []kind {
	return []kind{
		{"tiny", 40, func(i int) *unstructured.Unstructured { return ask(scenario.GrowingClass, "4Mi", i) }},
		{"unfit", 15, func(i int) *unstructured.Unstructured {
			return ask(scenario.FastClass, []string{"500Ti", "30Gi", "8Ei"}[i%3], i)
		}},
		{"classless", 20, func(i int) *unstructured.Unstructured { return ask([]string{"", "no-such-class"}[i%2], "800Gi", i) }},
		{"large", 20, func(i int) *unstructured.Unstructured {
			return annotated(ask(scenario.ThinClass, "32Mi", i), fields{"note": strings.Repeat("x", 250<<10)})
		}},
		{"below-limit", 40, func(i int) *unstructured.Unstructured { // api.MaxObject
			return annotated(ask(scenario.FastClass, "1Ti", i), fields{"note": strings.Repeat("y", 60<<10)})
		}},
		{"misleading", 40, func(i int) *unstructured.Unstructured {
			text := junk[i%len(junk)]
			return annotated(ask(scenario.ThinClass, "32Mi", i), fields{
				api.AnnotationSelectedNode: text, api.AnnotationStorageProvisioner: text, api.AnnotationTrimInterval: text, api.AnnotationMoveTo: text, api.AnnotationMoveWith: text,
				api.AnnotationRetriedAt: text, api.AnnotationNoNodeExpansion: text, "pv.kubernetes.io/bind-completed": text,
			})
		}},
		{"taken", 5, func(i int) *unstructured.Unstructured { // names a volume that it cannot know, or does not exist
			c := ask(scenario.ThinClass, "32Mi", i)
			spec(c)["volumeName"] = fmt.Sprintf("pvc-00000000-0000-4000-8000-%012d", i)
			return c
		}},
	}
}

func sourceKinds() []kind {
	return []kind{
		{"long-source", 20, func(i int) *unstructured.Unstructured {
			return from(i, api.SnapshotGroup, "VolumeSnapshot", strings.Repeat("\u00e9", 180_000))
		}},
		{"megabyte", 1, func(i int) *unstructured.Unstructured {
			return from(i, api.SnapshotGroup, "VolumeSnapshot", strings.Repeat("z", 500_000))
		}},
		{"clone", 116, func(i int) *unstructured.Unstructured { return from(i, "", "PersistentVolumeClaim", "megabyte-0") }},
		{"foreign-source", 30, func(i int) *unstructured.Unstructured {
			name := []string{"kept-node-1", "round-1", "../../namespaces/" + cluster.Namespace + "/persistentvolumeclaims/kept-node-1", junk[i%len(junk)]}[i%4]
			c := from(i, "", "PersistentVolumeClaim", name)
			if i%5 == 0 { // without the API server's feature gate for that it drops the whole source
				spec(c)["dataSourceRef"].(fields)["namespace"] = cluster.Namespace
			}
			return c
		}},
		{"other-source", 10, func(i int) *unstructured.Unstructured { return from(i, "hostile.example", "Volume", junk[i%len(junk)]) }},
	}
}

func snapshotKinds() []kind {
	return []kind{
		{"origin", 3, func(i int) *unstructured.Unstructured { return ask(scenario.ThinClass, "32Mi", i) }},
		{"snapshot", 60, func(i int) *unstructured.Unstructured { return snapshotOf("", fmt.Sprintf("origin-%d", i%3)) }},
		{"sourceless", 20, func(i int) *unstructured.Unstructured {
			source := []string{"kept-node-1", strings.Repeat("w", 100<<10), junk[i%len(junk)]}[i%3]
			return annotated(snapshotOf("", source), fields{"note": strings.Repeat(junk[i%len(junk)], 20)})
		}},
	}
}

func podKinds() []kind {
	together := func(i int, first, second string) *unstructured.Unstructured {
		return pod(i, fmt.Sprintf("%s-%d", first, i), fmt.Sprintf("%s-%d", second, i))
	}
	return []kind{
		{"half", 6, func(i int) *unstructured.Unstructured { return ask(scenario.ThinClass, "512Mi", -1) }},
		{"selecting", 6, func(i int) *unstructured.Unstructured { // no volume has that label
			c := ask(scenario.ThinClass, "512Mi", -1)
			spec(c)["selector"] = fields{"matchLabels": fields{"hostile": "true"}}
			return c
		}},
		{"waiting", 6, func(i int) *unstructured.Unstructured { return together(i, "half", "selecting") }},
		{"wide", 4, func(i int) *unstructured.Unstructured { return ask(scenario.FastClass, "20Gi", -1) }},
		{"wider", 4, func(i int) *unstructured.Unstructured { return ask(scenario.FastClass, "20Gi", -1) }},
		{"apart", 4, func(i int) *unstructured.Unstructured { return together(i, "wide", "wider") }},
		{"bound-elsewhere", 5, func(i int) *unstructured.Unstructured { // tells the kubelet of another node to mount it
			p := pod(i, fmt.Sprintf("tiny-%d", i))
			spec(p)["nodeName"] = selectedNode(i + 1)
			return p
		}},
		{"decoy", 5, func(i int) *unstructured.Unstructured { // looks like the driver's pod
			p := pod(i)
			p.SetLabels(map[string]string{"app.kubernetes.io/name": "nodelvm", "app.kubernetes.io/component": "node", "app.kubernetes.io/part-of": "nodelvm"})
			return p
		}},
		{"claimless", 5, func(i int) *unstructured.Unstructured { return pod(i, append(missing(40), junk...)...) }},
		{"long-claim", 10, func(i int) *unstructured.Unstructured {
			return pod(i, fmt.Sprintf("tiny-%d", i), strings.Repeat("v", 400<<10))
		}},
		{"many-claims", 5, func(i int) *unstructured.Unstructured {
			return pod(i, append(missing(4000), fmt.Sprintf("tiny-%d", i))...)
		}},
	}
}

// missing returns names of claims that do not exist.
func missing(count int) (names []string) {
	for n := range count {
		names = append(names, fmt.Sprintf("missing-%d", n))
	}
	return names
}

// ask makes a claim of a class, unless that is "", which selects its node itself, unless i is negative.
func ask(class, size string, i int) *unstructured.Unstructured {
	c := &unstructured.Unstructured{Object: fields{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": fields{}, "spec": fields{
		"storageClassName": class, "accessModes": []any{"ReadWriteOnce"}, "resources": fields{"requests": fields{"storage": size}}}}}
	if i < 0 {
		return c
	}
	return annotated(c, fields{api.AnnotationSelectedNode: selectedNode(i)})
}

// from makes a claim with a source.
func from(i int, group, of, name string) *unstructured.Unstructured {
	c := ask(scenario.ThinClass, "32Mi", i)
	source := fields{"kind": of, "name": name}
	if group != "" {
		source["apiGroup"] = group
	}
	spec(c)["dataSourceRef"] = source
	return c
}

// snapshotOf makes a VolumeSnapshot of a claim.
func snapshotOf(name, claim string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: fields{"apiVersion": api.SnapshotGroup + "/v1", "kind": "VolumeSnapshot", "metadata": fields{"name": name},
		"spec": fields{"volumeSnapshotClassName": scenario.ThinClass, "source": fields{"persistentVolumeClaimName": claim}}}}
}

// pod makes a pod with a container of the driver's name, and claims.
func pod(i int, claims ...string) *unstructured.Unstructured {
	volumes := []any{}
	for n, claim := range claims {
		volumes = append(volumes, fields{"name": fmt.Sprintf("volume-%d", n), "persistentVolumeClaim": fields{"claimName": claim}})
	}
	p := &unstructured.Unstructured{Object: fields{"apiVersion": "v1", "kind": "Pod", "metadata": fields{}, "spec": fields{
		"terminationGracePeriodSeconds": int64(1), "automountServiceAccountToken": false, "volumes": volumes,
		"containers": []any{fields{"name": "nodelvm", "image": scenario.BusyboxImage, "command": []any{"sleep", "infinity"}}}}}}
	return annotated(p, fields{"note": junk[i%len(junk)]})
}

// annotated adds annotations to an object.
func annotated(o *unstructured.Unstructured, more fields) *unstructured.Unstructured {
	metadata := o.Object["metadata"].(fields)
	all, ok := metadata["annotations"].(fields)
	if !ok {
		all = fields{}
		metadata["annotations"] = all
	}
	for key, value := range more {
		all[key] = value
	}
	return o
}

func spec(o *unstructured.Unstructured) fields { return o.Object["spec"].(fields) }

// kindOf returns the resource of an object.
func kindOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	switch o.GetKind() {
	case "PersistentVolumeClaim":
		return claimKind
	case "Pod":
		return podKind
	}
	return snapshotKind
}
