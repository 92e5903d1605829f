package controller

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/api"
)

func TestUnknownParameterNamesTheNearest(t *testing.T) {
	_, err := parseParameters(map[string]string{"volumegroup": "vg"})
	if err == nil || !strings.Contains(err.Error(), `unknown parameter "volumegroup" (did you mean volumeGroup?)`) {
		t.Errorf("the error is %v", err)
	}
}

// The janitor reports unknown parameters by the list in api.
func TestEveryParameterIsInTheList(t *testing.T) {
	if read, listed := slices.Sorted(maps.Keys(known)), slices.Sorted(slices.Values(api.Parameters)); !slices.Equal(read, listed) {
		t.Errorf("the driver reads %q, and api.Parameters is %q", read, listed)
	}
}
