package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestEventuallyReturnsLastError(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	seen := false
	err := Eventually(ctx, func() error {
		if !seen {
			seen = true
			return errors.New("the pod is Pending")
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if err == nil || !strings.Contains(err.Error(), "the pod is Pending") {
		t.Errorf("it failed with %v", err)
	}
}

func TestIsNotSent(t *testing.T) {
	for said, want := range map[string]bool{
		"Unable to connect to the server: net/http: TLS handshake timeout":                                                    true,
		"Error from server: error dialing backend: dial tcp 10.88.0.11:10250: connect: connection refused":                    true,
		`error: Internal error occurred: error sending request: Post "https://10.88.0.11:10250/exec/demo/db-0/postgres": EOF`: true,
		`error: Internal error occurred: unable to upgrade connection: container not found ("main")`:                          true,
		"Error from server: etcdserver: request timed out":                                                                    true,
		"command terminated with exit code 1":                                                                                 false,
		"error: Internal error occurred: error reading from error stream: read tcp 10.88.0.1:40000: connection reset by peer": false,
		`psql: error: connection to server on socket "/tmp/.s.PGSQL.5432" failed: FATAL:  the database system is starting up`: false,
		`Error from server (NotFound): pods "db-0" not found`:                                                                 false,
		`Error from server (AlreadyExists): error when creating "STDIN": pods "db-0" already exists`:                          false,
	} {
		if got := isNotSent(errors.New("kubectl exec: exit status 1: " + said)); got != want {
			t.Errorf("%s: %v, want %v", said, got, want)
		}
	}
	if isNotSent(nil) {
		t.Error("what held is asked again")
	}
}
