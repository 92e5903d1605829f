package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// client asks one source for one volume.
type client struct {
	offer Offer
	claim string    // Request.Claim
	size  lvm.Bytes // of the source's device
	token func() (string, error)
	http  *http.Client
}

func newClient(offer Offer, claim string, key identity, token func() (string, error)) (*client, error) {
	if host, port, err := net.SplitHostPort(offer.Address); err != nil || host == "" || port == "" || len(offer.Address) > 256 {
		return nil, lvm.Errorf(lvm.KindInvalid, "the source's address %q is none", offer.Address)
	}
	return &client{offer: offer, claim: claim, size: offer.deviceSize(), token: token, http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the source redirects") },
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext, TLSClientConfig: key.clientTLS(offer.Key),
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 2 * time.Minute, MaxResponseHeaderBytes: 16 << 10,
			DisableCompression: true, MaxIdleConns: 1, IdleConnTimeout: 5 * time.Second, Protocols: http1(),
		},
	}}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// get calls each for every chunk of a range, in order. The frame's data is valid until each returns a buffer to free; it reads into the buffers that
// it takes from there. An error means that the range is incomplete, whatever each got.
func (c *client) get(ctx context.Context, chunks span, hashes bool, buffer func() []byte, each func(i int64, f frame, buffer []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, err := c.request(ctx, chunks, hashes)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	// One chunk has so long. A source that sends byte after byte for hours would hold the move back.
	slow := time.AfterFunc(chunkTime, func() { cancel(fmt.Errorf("the source sent no whole chunk in %s", chunkTime)) })
	defer slow.Stop()
	frames := newFrames(body, hashes)
	for i := chunks.from; i < chunks.to; i++ {
		b := buffer()
		slow.Reset(chunkTime)
		f, err := frames.next(b, lengthOf(c.size, i))
		slow.Stop()
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		if err := each(i, f, b); err != nil {
			return err
		}
	}
	slow.Reset(chunkTime)
	return frames.end()
}

func (c *client) request(ctx context.Context, chunks span, hashes bool) (io.ReadCloser, error) {
	token, err := c.token()
	if err != nil {
		return nil, lvm.Errorf(lvm.KindInternal, "cannot read this node's token for moves: %w", err)
	}
	id, err := lvm.ParseID(c.offer.Volume)
	if err != nil {
		return nil, err
	}
	q := query{id: id, uuid: c.offer.UUID, move: c.offer.Move, claim: c.claim, span: chunks, hashes: hashes}
	u := url.URL{Scheme: "https", Host: c.offer.Address, Path: path, RawQuery: q.values().Encode()}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, lvm.Errorf(lvm.KindInvalid, "the offer is wrong: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := c.http.Do(r)
	if err != nil {
		if whole := (*url.Error)(nil); errors.As(err, &whole) {
			err = whole.Err // without the long URL
		}
		return nil, lvm.Errorf(lvm.KindBusy, "the source of the volume at %s does not answer: %w", c.offer.Address, err)
	}
	if answer.StatusCode != http.StatusOK {
		defer func() { _ = answer.Body.Close() }()
		why, _ := io.ReadAll(io.LimitReader(answer.Body, 512)) // what came is enough
		return nil, lvm.Errorf(lvm.KindBusy, "the source of the volume answers %d: %q", answer.StatusCode, strings.TrimSpace(string(why)))
	}
	if n, err := strconv.ParseInt(answer.Header.Get(sizeHeader), 10, 64); err != nil || lvm.Bytes(n) < c.size {
		_ = answer.Body.Close()
		return nil, lvm.Errorf(lvm.KindConflict, "the source's device has %q bytes, and its offer says %d", answer.Header.Get(sizeHeader), c.size)
	}
	return answer.Body, nil
}

// deviceSize is how much of the source's logical volume is copied.
func (o Offer) deviceSize() lvm.Bytes { return o.Class.DeviceSize(o.Size) }
