package controller

import (
	"strings"
	"testing"
)

func TestUnknownParameterNamesTheNearest(t *testing.T) {
	_, err := parseParameters(map[string]string{"volumegroup": "vg"})
	if err == nil || !strings.Contains(err.Error(), `unknown parameter "volumegroup" (did you mean volumeGroup?)`) {
		t.Errorf("the error is %v", err)
	}
}
