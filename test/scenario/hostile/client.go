package hostile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// The client's pace, and how much it has at a time: less than its quota, and than what the disks hold.
const (
	pause         = time.Second
	mostClaims    = 24
	mostSnapshots = 12
)

// tenant is the client.
type tenant struct {
	client *dynamic.DynamicClient // with the tenant's rights
	random *rand.Rand

	made              int
	claims, snapshots []string       // that it has created, and not deleted
	done, refused     map[string]int // requests by operation
	refusal           error          // the last one
}

func newTenant(env *scenario.Environment, random *rand.Rand) (*tenant, error) {
	client, err := dynamicClient(env, "tenant")
	return &tenant{client: client, random: random, done: map[string]int{}, refused: map[string]int{}}, err
}

// malicious returns the objects of all kinds with their names.
func malicious() (all []*unstructured.Unstructured) {
	for _, k := range kinds() {
		for i := range k.count {
			object := k.make(i)
			object.SetName(fmt.Sprintf("%s-%d", k.name, i))
			all = append(all, object)
		}
	}
	return all
}

func (t *tenant) create(ctx context.Context, object *unstructured.Unstructured) error {
	_, err := t.client.Resource(kindOf(object)).Namespace(tenantsNamespace).Create(ctx, object, metav1.CreateOptions{})
	return err
}

// createObjects creates the malicious objects. The API server must accept each: what it refuses attacks nothing.
func (t *tenant) createObjects(ctx context.Context) error {
	for _, object := range malicious() {
		var answer error
		err := cluster.Eventually(ctx, func() error {
			if answer = t.create(ctx, object); apierrors.IsInvalid(answer) || apierrors.IsBadRequest(answer) || apierrors.IsAlreadyExists(answer) {
				return nil
			}
			return answer // such as while the quota and the service account are new, or the quota counts another object
		})
		if err := errors.Join(err, answer); err != nil {
			return fmt.Errorf("create %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// schedulerIsSafe fails unless the API server refuses a claim that names its class in the old annotation alone.
func (t *tenant) schedulerIsSafe(ctx context.Context) error {
	c := annotated(ask("", "32Mi", -1), fields{api.AnnotationStorageClassBeta: scenario.ThinClass})
	delete(spec(c), "storageClassName")
	c.SetName("old-annotation")
	if err := t.create(ctx, c); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("a claim with its class in the annotation alone: %w", cmp.Or(err, errors.New("accepted")))
	}
	return nil
}

// snapshotsAreBounded takes snapshots until the quota refuses one, and deletes them again.
func (t *tenant) snapshotsAreBounded(ctx context.Context) (err error) {
	snapshots := t.client.Resource(snapshotKind).Namespace(tenantsNamespace)
	for i := range snapshotQuota {
		name := fmt.Sprintf("beyond-%d", i)
		if err = t.create(ctx, snapshotOf(name, "no-such-claim")); err != nil {
			break
		}
		defer func() { err = errors.Join(err, snapshots.Delete(ctx, name, metav1.DeleteOptions{})) }()
	}
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
		return fmt.Errorf("snapshots beyond the quota: %w", cmp.Or(err, errors.New("accepted")))
	}
	return nil
}

// work sends requests at random until ctx ends.
func (t *tenant) work(ctx context.Context, _ *scenario.Environment) {
	for ctx.Err() == nil {
		what, err := t.operate(ctx)
		t.done[what]++
		if err != nil { // of its quota, or because of what else it does
			t.refused[what]++
			t.refusal = fmt.Errorf("%s: %w", what, err)
		}
		kubeclient.Sleep(ctx, pause)
	}
}

// operate sends one request.
func (t *tenant) operate(ctx context.Context) (what string, err error) {
	claims, snapshots := t.client.Resource(claimKind).Namespace(tenantsNamespace), t.client.Resource(snapshotKind).Namespace(tenantsNamespace)
	t.made++
	name := fmt.Sprintf("random-%d", t.made)
	switch n := t.random.IntN(100); {
	case len(t.claims) == 0 || n < 30 && len(t.claims) < mostClaims:
		return "create", t.createClaim(ctx, name)
	case n < 50:
		return "expand", patch(ctx, claims, choose(t.random, t.claims), fields{"spec": fields{"resources": fields{"requests": fields{"storage": fmt.Sprintf("%dMi", 64+t.made%64)}}}})
	case n < 65 && len(t.snapshots) < mostSnapshots:
		t.snapshots = append(t.snapshots, name)
		return "snapshot", t.create(ctx, snapshotOf(name, choose(t.random, t.claims)))
	case n < 75 && len(t.snapshots) > 0:
		return "delete", snapshots.Delete(ctx, take(t.random, &t.snapshots), metav1.DeleteOptions{})
	case n < 85: // each watch gets the whole object
		all := malicious()
		object := all[t.random.IntN(len(all))]
		return "change", patch(ctx, t.client.Resource(kindOf(object)).Namespace(tenantsNamespace), object.GetName(), fields{"metadata": fields{"annotations": fields{"changed": fmt.Sprint(t.made)}}})
	}
	return "delete", claims.Delete(ctx, take(t.random, &t.claims), metav1.DeleteOptions{})
}

// createClaim creates an ordinary claim, a restore or a clone.
func (t *tenant) createClaim(ctx context.Context, name string) error {
	node := t.random.IntN(3)
	claim := ask(choose(t.random, []string{scenario.ThinClass, scenario.ThinClass, scenario.GrowingClass}), "64Mi", node)
	switch source := t.random.IntN(4); {
	case source == 0 && len(t.snapshots) > 0:
		claim = from(node, api.SnapshotGroup, "VolumeSnapshot", choose(t.random, t.snapshots))
	case source == 1 && len(t.claims) > 0:
		claim = from(node, "", "PersistentVolumeClaim", choose(t.random, t.claims))
	}
	claim.SetName(name)
	t.claims = append(t.claims, name)
	return t.create(ctx, claim)
}

func patch(ctx context.Context, of dynamic.ResourceInterface, name string, change fields) error {
	body, err := (&unstructured.Unstructured{Object: change}).MarshalJSON()
	if err != nil {
		return err
	}
	_, err = of.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

func choose(random *rand.Rand, of []string) string { return of[random.IntN(len(of))] }

// take removes a random name from a list.
func take(random *rand.Rand, from *[]string) string {
	i := random.IntN(len(*from))
	name := (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	return name
}

// hasWorked fails unless each operation was accepted several times.
func (t *tenant) hasWorked() error {
	for _, what := range []string{"create", "expand", "snapshot", "change", "delete"} {
		if accepted := t.done[what] - t.refused[what]; accepted < 5 {
			return fmt.Errorf("the tenant's client did not attack: of %d requests to %s, %d were accepted; the last refusal: %w", t.done[what], what, accepted, t.refusal)
		}
	}
	return nil
}
