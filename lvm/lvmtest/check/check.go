// Package check has what the tests of all packages check alike.
package check

// T is the part of testing.TB that Must uses; *rapid.T has it, too.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Must ends the test at once if there is an error.
func Must(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
