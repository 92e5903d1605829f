// Package e2e drives everything that needs the lab. TestLVM runs, inside a lab node, the tests that need real LVM;
// TestDemo runs the scenario of `make demo` on a real cluster. The build tag e2e keeps both out of a plain
// `go test ./...`, which needs nothing but Go.
package e2e
