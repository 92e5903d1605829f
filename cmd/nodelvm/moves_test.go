package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
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
	m, err := d.newMoves(client, nil, nil)
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

// TestMovesCopy: the API server must know a peer's token as one of the driver's account on the node that the volume moves to, and that node must have
// published the peer's key.
func TestMovesCopy(t *testing.T) {
	const refused = `answers 403: "not allowed"`
	for name, c := range map[string]struct {
		account, node, key string // "" for those of the target
		says               string
		log                string
	}{
		"the target":             {},
		"another node's token":   {node: "node-3", says: refused, log: "does not move to node"},
		"another account":        {account: "system:serviceaccount:demo:default", says: refused, log: "the peer's token is not one of"},
		"a key that is not said": {key: "sha256:0", says: refused, log: "has not published the key"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMovingVolume(t, cmp.Or(c.account, driverAccount), cmp.Or(c.node, "node-2"), c.key)
			if err := s.receive(); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v\n%s", err, s.log)
			}
			if !slices.Contains(s.sent(), reviews) || !strings.Contains(s.log.String(), c.log) {
				t.Errorf("%q\n%s", s.sent(), s.log)
			}
			got, err := os.ReadFile(s.target)
			if err != nil || bytes.Equal(got, s.content) != (c.says == "") {
				t.Errorf("the copy has %d bytes (%v)", len(got), err)
			}
		})
	}
}

// reviews is the request that identifies a peer.
const reviews = "POST /apis/authentication.k8s.io/v1/tokenreviews"

// movingVolume is a volume that moves from this driver's node-1 to node-2, and a peer that wants it.
type movingVolume struct {
	t       *testing.T
	peer    *move.Node
	offer   move.Offer
	content []byte
	target  string // the peer's device
	log     *buffer
	sent    func() []string
}

func newMovingVolume(t *testing.T, account, node, key string) *movingVolume {
	t.Helper()
	const size = 8 * lvm.MiB
	s := &movingVolume{t: t, log: &buffer{}, target: device(t, make([]byte, size)), content: bytes.Repeat([]byte("12345678"), int(size/8))}
	other := lvmtest.NewHost(t, lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})
	peer, err := move.New(move.Config{Engine: onFile{other, s.target}, Token: func() (string, error) { return "peer's", nil }, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = peer.Close(context.Background()) })
	s.peer = peer

	source := lvmtest.NewHost(t, lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})
	v, err := source.Create(t.Context(), lvm.Spec{Name: "pvc-uid", Required: size, Block: true, Class: lvm.Class{Group: "vg"}})
	must(t, err)
	must(t, source.NoteMove(t.Context(), v.ID, v.UUID, `{"from":"node-1","to":"node-2","ns":"demo","claim":"data","uid":"uid","capacity":"8Mi","handle":"`+v.ID.String()+`"}`))
	review := &authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}}
	review.Status.Authenticated, review.Status.User.Username = true, account
	review.Status.User.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {node}}
	answers := parkedVolume(v, cmp.Or(key, peer.Key()))
	answers[reviews] = review
	client, sent := kubetest.RecordedClient(t, answers)
	s.sent = sent
	own := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(own, []byte(ofAccount(driverAccount)), 0o600))
	d := newDriver(&options{nodeName: "node-1", move: moveOptions{listen: freeAddress(t), address: "127.0.0.1", tokenFile: own, keep: time.Hour}}, slog.New(slog.NewJSONHandler(s.log, nil)))
	m, err := d.newMoves(client, onFile{source, device(t, s.content)}, nil)
	must(t, err)
	if m.observe() == nil {
		t.Fatal("it reads no claim")
	}
	s.offer, err = m.node.Hold(t.Context(), v.ID, v.UUID)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	parts, ctx := errgroup.WithContext(ctx)
	must(t, m.start(ctx, parts, wait.Limit(time.Minute)))
	t.Cleanup(func() {
		stop()
		if err := parts.Wait(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// parkedVolume are the objects of a volume that moves to node-2, which published a key.
func parkedVolume(v lvm.Volume, key string) map[string]any {
	pv := kubetest.VolumeOn("node-1", "uid")
	pv.Spec.CSI.VolumeHandle, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = v.ID.String(), "demo", "data", "uid"
	pv.Annotations = map[string]string{api.AnnotationMovingTo: "node-2", api.AnnotationMoveAnswer: `{"key":"` + key + `"}`}
	term := &pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
	term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: api.ParkedKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}})
	claim := kubetest.Claim("data", "late", pv.Name)
	claim.Namespace, claim.UID, claim.Annotations = "demo", "uid", map[string]string{api.AnnotationMoveTo: "node-2", api.AnnotationSelectedNode: "node-1"}
	return map[string]any{"GET /api/v1/persistentvolumes/pvc-uid": pv, "GET /api/v1/namespaces/demo/persistentvolumeclaims/data": claim}
}

// receive copies the volume to the peer.
func (s *movingVolume) receive() error {
	s.t.Helper()
	for deadline := time.Now().Add(wait.Limit(time.Minute)); ; time.Sleep(10 * time.Millisecond) {
		p, err := s.peer.Receive(s.t.Context(), s.offer, s.offer.Class)
		must(s.t, err)
		if p.Problem != nil || p.Volume.State == lvm.StateReceived {
			return p.Problem
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%+v\n%s", p, s.log)
		}
	}
}

// onFile is a host of a fake node, whose devices do not exist.
type onFile struct {
	*host.Host
	path string
}

func (f onFile) MoveDevice(context.Context, lvm.ID, string, string) (string, error) {
	return f.path, nil
}

// device is a file with this content.
func device(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "device")
	must(t, os.WriteFile(path, content, 0o600))
	return path
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
	must(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

var must = check.Must
