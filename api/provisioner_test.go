package api_test

import (
	"testing"

	"github.com/nodelvm/nodelvm/api"
)

// TestClassOf: as in Kubernetes, the old annotation wins, also if it is empty.
func TestClassOf(t *testing.T) {
	ours := "ours"
	for name, test := range map[string]struct {
		annotations map[string]string
		field       *string
		want        string
	}{
		"field":               {nil, &ours, "ours"},
		"neither":             {nil, nil, ""},
		"annotation":          {map[string]string{api.AnnotationStorageClassBeta: "ebs"}, nil, "ebs"},
		"both":                {map[string]string{api.AnnotationStorageClassBeta: "ebs"}, &ours, "ebs"},
		"an empty annotation": {map[string]string{api.AnnotationStorageClassBeta: ""}, &ours, ""},
	} {
		if got := api.ClassOf(test.annotations, test.field); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
