package move

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodelvm/nodelvm/api"
)

// TestConflictIsNotReported: another program changed an object first, and the agent repeats the step at once. A user can do nothing about that.
func TestConflictIsNotReported(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "uid-data"}}
	for err, reports := range map[error]int{
		apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumes"}, "pvc-1", errors.New("the object has been modified")): 0,
		errors.New("the volume group has too little free space"):                                                                        1,
	} {
		a := &Agent{node: "node-1", now: time.Now, reported: map[string]reported{}}
		a.tell(t.Context(), &view{claim: claim, local: &Local{}}, step{do: hold, phase: api.MoveStopping}, err)
		if len(a.reported) != reports {
			t.Errorf("%v: reports %v", err, a.reported)
		}
	}
}
