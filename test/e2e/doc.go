// Package e2e runs the tests that need the lab: TestLVM runs test binaries that need real LVM in lab nodes, and tests such as
// TestDemo run scenarios on a real cluster. The build tag e2e excludes them from a plain `go test ./...`, which needs only Go.
package e2e
