package main

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/move"
)

// ofAccount is a token of an account, without a signature.
func ofAccount(account string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"aud":["nodelvm.io/move"],"sub":"`+account+`"}`)) + ".c2ln"
}

const driverAccount = "system:serviceaccount:nodelvm-system:nodelvm"

// TestMovesOff: without --move nothing listens, nothing reads claims, and no key exists.
func TestMovesOff(t *testing.T) {
	client, sent := kubetest.RecordedClient(t, nil)
	d := newDriver(&options{nodeName: "node-1"}, slog.New(slog.DiscardHandler))
	m, err := d.newMoves(client, nil)
	if m != nil || err != nil || m.observe() != nil {
		t.Errorf("%+v, %v", m, err)
	}
	parts, ctx := errgroup.WithContext(t.Context())
	if err := m.start(ctx, parts, 0); err != nil {
		t.Error(err)
	}
	if err := parts.Wait(); err != nil || len(sent()) > 0 {
		t.Errorf("%v, %q", err, sent())
	}
}

// TestMovesRefuse: a peer gets a held volume only if the API server knows its token, with the audience of moves, as one of the driver's account on
// the node that the volume moves to.
func TestMovesRefuse(t *testing.T) {
	review := &authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}}
	review.Status.Authenticated = true
	review.Status.User.Username = driverAccount
	review.Status.User.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {"node-2"}}
	client, sent := kubetest.RecordedClient(t, map[string]any{"POST /apis/authentication.k8s.io/v1/tokenreviews": review})
	source := lvmtest.NewHost(t, lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})
	v, err := source.Create(t.Context(), lvm.Spec{Name: "pvc-1", Required: lvm.GiB, Class: lvm.Class{Group: "vg"}})
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(own, []byte(ofAccount(driverAccount)), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &buffer{}
	r := newDriver(&options{nodeName: "node-1", move: moveOptions{listen: freeAddress(t), address: "127.0.0.1", tokenFile: own, keep: time.Hour}}, slog.New(slog.NewJSONHandler(log, nil)))
	m, err := r.newMoves(client, source)
	if err != nil || m.observe() == nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	parts, ctx := errgroup.WithContext(ctx)
	if err := m.start(ctx, parts, wait.Limit(time.Minute)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop()
		if err := parts.Wait(); err != nil {
			t.Error(err)
		}
	}()
	offer, err := m.node.Hold(t.Context(), v.ID, v.UUID)
	if err != nil {
		t.Fatal(err)
	}
	other := lvmtest.NewHost(t, lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})
	peer, err := move.New(move.Config{Engine: onFile{other, filepath.Join(t.TempDir(), "device")}, Token: func() (string, error) { return "peer's", nil }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close(context.Background()) }()
	var p move.Progress
	for deadline := time.Now().Add(wait.Limit(time.Minute)); p.Problem == nil; time.Sleep(10 * time.Millisecond) {
		if p, err = peer.Receive(t.Context(), offer, offer.Class); err != nil || time.Now().After(deadline) {
			t.Fatal(p, err)
		}
	}
	if !strings.Contains(p.Problem.Error(), `answers 403: "not allowed"`) {
		t.Error(p.Problem)
	}
	if !slices.Contains(sent(), "POST /apis/authentication.k8s.io/v1/tokenreviews") || !strings.Contains(log.String(), "does not move to node") {
		t.Errorf("%q\n%s", sent(), log)
	}
}

// onFile is a host of a fake node, whose devices do not exist.
type onFile struct {
	*host.Host
	path string
}

func (f onFile) MoveDevice(context.Context, lvm.ID, string, string) (string, error) {
	return f.path, errors.Join(os.WriteFile(f.path, nil, 0o600), os.Truncate(f.path, int64(lvm.GiB)))
}

func TestAccountOfToken(t *testing.T) {
	for token, want := range map[string]string{
		ofAccount(driverAccount):              driverAccount,
		ofAccount("admin"):                    "",
		"":                                    "",
		"opaque":                              "",
		"a.%.c":                               "",
		"a." + "e30" + ".c":                   "",
		ofAccount(driverAccount) + ".another": "",
	} {
		if got, err := accountOf(token); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", token, got, err)
		}
	}
}

func TestMoveOptions(t *testing.T) {
	rate := func(text string) resource.QuantityValue {
		return resource.QuantityValue{Quantity: resource.MustParse(text)}
	}
	for name, c := range map[string]struct {
		o          moveOptions
		standalone bool
		says       string
	}{
		"off":                {o: moveOptions{}, standalone: true},
		"on":                 {o: moveOptions{listen: ":9812", address: "10.0.0.7", keep: time.Hour}},
		"IPv6, with a limit": {o: moveOptions{listen: "[::]:9812", address: "fd00::7", keep: time.Hour, rate: rate("100Mi")}},
		"no port":            {o: moveOptions{listen: ":", address: "10.0.0.7", keep: time.Hour}, says: "--move is"},
		"any port":           {o: moveOptions{listen: ":0", address: "10.0.0.7", keep: time.Hour}, says: "--move is"},
		"no address":         {o: moveOptions{listen: ":9812", keep: time.Hour}, says: "POD_IP"},
		"standalone":         {o: moveOptions{listen: ":9812", address: "10.0.0.7", keep: time.Hour}, standalone: true, says: "--standalone"},
		"slow":               {o: moveOptions{listen: ":9812", address: "10.0.0.7", keep: time.Hour, rate: rate("1Mi")}, says: "--move-rate is 1Mi"},
		"negative":           {o: moveOptions{listen: ":9812", address: "10.0.0.7", keep: time.Hour, rate: rate("-1Gi")}, says: "--move-rate is -1Gi"},
		"at once":            {o: moveOptions{listen: ":9812", address: "10.0.0.7"}, says: "--move-former-copy-ttl is 0s"},
	} {
		err := c.o.check(c.standalone)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// freeAddress is one at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
