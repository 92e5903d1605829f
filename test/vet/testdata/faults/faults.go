// Package faults has one fault for each linter.
package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
)

type color int

const (
	red color = iota
	green
)

func unusedFunction() {} // want unused

func unchecked() {
	os.Remove("x") // want errcheck
}

func suppressed() {
	os.Remove("x") //nolint:errcheck // shows that a comment suppresses
}

func compared(err error) bool {
	return err == os.ErrNotExist // want errorlint
}

func switched(c color) {
	switch c { // want exhaustive
	case red:
	}
}

func withDefault(c color) {
	switch c {
	case red:
	default:
	}
}

func assigned() int {
	n := 1 // want ineffassign
	n = 2
	return n
}

func swallowed() error {
	if err := errors.New("x"); err != nil {
		return nil // want nilerr
	}
	return nil
}

func requested() (*http.Response, error) {
	return http.Get("http://localhost") // want noctx
}

func printed() string {
	return fmt.Sprintf("%d", "x") // want printf
}

func simplified(b bool) bool {
	return b == true // want S1002
}

func passed(ctx context.Context) error {
	return withContext(context.Background()) // want contextcheck
}

func withContext(ctx context.Context) error { return ctx.Err() }

func nilMap() {
	var m map[string]int
	m["x"] = 1 // want SA5000
}

var _ = []any{unchecked, suppressed, compared, switched, withDefault, assigned, swallowed, requested, printed, simplified, passed, nilMap, green}
