package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodelvm/nodelvm/controller"
	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/fullcopy"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	kubemove "github.com/nodelvm/nodelvm/kube/move"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/move"
)

// moveOptions are the flags of moves between nodes.
type moveOptions struct {
	listen    string // "": no volume moves
	address   string // of this pod, as other nodes reach it
	tokenFile string
	rate      resource.QuantityValue
	keep      time.Duration
}

func (o *moveOptions) check(standalone bool) error {
	if o.listen == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(o.listen)
	rate := bytesOf(&o.rate.Quantity)
	switch {
	case err != nil || port == "" || port == "0":
		return fmt.Errorf("--move is %q; set it to an address with a port, as :9812", o.listen)
	case standalone:
		return errors.New("--move does not go with --standalone: claims say which volumes move, and there is no API server")
	case net.ParseIP(o.address) == nil:
		return fmt.Errorf("--move needs the IP address of this pod, and the environment variable POD_IP is %q", o.address)
	case rate != 0 && rate < move.MinRate:
		return fmt.Errorf("--move-rate is %s; set it to 0 for no limit, or to at least %s per second", o.rate.String(), move.MinRate)
	case o.keep <= 0:
		return fmt.Errorf("--move-former-copy-ttl is %s; set it to a positive duration", o.keep)
	}
	return nil
}

// moves moves volumes to and from this node, and copies snapshots. The nil one, without --move, does nothing.
type moves struct {
	o      *moveOptions
	node   *move.Node
	agent  *kubemove.Agent
	copies *fullcopy.Agent
}

// movable is what moves and full copies need of the node's LVM.
type movable interface {
	move.Engine
	fullcopy.Volumes
}

// newMoves prepares the moves without sending a request. prepare is that of kubemove.EngineOf.
func (d *driver) newMoves(client *kubeclient.Client, engine movable, prepare func(context.Context, lvm.ID) (func(), error)) (*moves, error) {
	o := &d.o.move
	if o.listen == "" || client == nil {
		return nil, nil
	}
	_, port, err := net.SplitHostPort(o.listen)
	if err != nil {
		return nil, err
	}
	m := &moves{o: o}
	if m.node, err = move.New(move.Config{
		Engine: engine, Authorizer: m, Token: m.token, Address: net.JoinHostPort(o.address, port), Rate: bytesOf(&o.rate.Quantity), Log: d.log,
		Copied: func(volume string) { m.agent.CopyEnded(volume) },
	}); err != nil {
		return nil, err
	}
	m.agent = kubemove.New(kubemove.Config{Client: client, Engine: kubemove.EngineOf(m.node, prepare), Node: d.o.nodeName, Grace: o.keep, Log: d.log})
	m.copies = fullcopy.New(fullcopy.Config{Client: client, Engine: m.node, Volumes: engine, Node: d.o.nodeName, Prepare: prepare, Log: d.log})
	return m, nil
}

// offers returns what says how other nodes copy what is here; nil without --move.
func (m *moves) offers() kube.Copies {
	if m == nil {
		return nil
	}
	return m.copies
}

// fullCopies returns the Controller service's copies of what is on other nodes; nil without --move.
func (m *moves) fullCopies() controller.FullCopies {
	if m == nil {
		return nil
	}
	return m.copies
}

// observe returns what gets each claim; nil without --move.
func (m *moves) observe() func(claim *corev1.PersistentVolumeClaim, deleted bool) {
	if m == nil {
		return nil
	}
	return m.agent.Observe
}

// start moves volumes in the background until ctx ends, and then waits so long for the end of copies.
func (m *moves) start(ctx context.Context, parts *errgroup.Group, grace time.Duration) error {
	if m == nil {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", m.o.listen)
	if err != nil {
		return fmt.Errorf("cannot serve the volumes that move away: %w", err)
	}
	parts.Go(func() error { return m.node.Serve(ctx, listener) })
	parts.Go(func() error {
		m.copies.Run(ctx)
		return nil
	})
	parts.Go(func() error {
		m.agent.Run(ctx)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		return m.node.Close(ctx)
	})
	return nil
}

// token is this node's, for other nodes. The kubelet replaces it before it expires.
func (m *moves) token() (string, error) {
	text, err := os.ReadFile(m.o.tokenFile)
	return strings.TrimSpace(string(text)), err
}

// MayPull is that of move.Authorizer. A peer is a pod of this pod's own account.
func (m *moves) MayPull(ctx context.Context, r move.Request) error {
	own, err := m.token()
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot read this node's token for moves: %w", err)
	}
	account, err := accountOf(own)
	if err != nil {
		return err
	}
	if r.Claim != "" {
		return m.copies.MayPull(ctx, account, r)
	}
	return m.agent.MayPull(ctx, account, r.Token, r.Key, r.Volume, r.UUID)
}

// accountOf returns the account of a service account's token (RFC 7519), which it does not verify.
func accountOf(token string) (string, error) {
	var claims struct {
		Subject string `json:"sub"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", lvm.Errorf(lvm.KindInternal, "this node's token for moves is not that of a service account: it has %d parts", len(parts))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(text, &claims)
	}
	switch {
	case err != nil:
		return "", lvm.Errorf(lvm.KindInternal, "cannot read the account in this node's token for moves: %w", err)
	case !strings.HasPrefix(claims.Subject, "system:serviceaccount:"):
		return "", lvm.Errorf(lvm.KindInternal, "this node's token for moves is not that of a service account: it is for %q", claims.Subject)
	}
	return claims.Subject, nil
}
