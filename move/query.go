package move

import (
	"errors"
	"net/url"
	"strconv"

	"github.com/nodelvm/nodelvm/lvm"
)

// query is what a request asks for.
type query struct {
	id     lvm.ID
	uuid   string
	move   string
	claim  string // Request.Claim
	since  string // only what changed since this round; "": everything
	span   span   // in chunks of unit
	hashes bool
}

func (q query) unit() unit {
	if q.since != "" {
		return deltaSize
	}
	return chunkSize
}

// path is that of all requests; it names the version of the protocol.
const path = "/v1/volume"

func (q query) values() url.Values {
	v := url.Values{"volume": {q.id.String()}, "uuid": {q.uuid}, "move": {q.move}, "from": {strconv.FormatInt(q.span.from, 10)}, "to": {strconv.FormatInt(q.span.to, 10)}}
	if q.hashes {
		v.Set("hashes", "1")
	}
	if q.claim != "" {
		v.Set("claim", q.claim)
	}
	if q.since != "" {
		v.Set("since", q.since)
	}
	return v
}

func parseQuery(v url.Values) (q query, err error) {
	if q.id, err = lvm.ParseID(v.Get("volume")); err != nil {
		return q, err
	}
	if err = lvm.CheckMove(v.Get("move")); err != nil {
		return q, err
	}
	q.uuid, q.move, q.since, q.hashes, q.claim = v.Get("uuid"), v.Get("move"), v.Get("since"), v.Get("hashes") == "1", v.Get("claim")
	if q.since != "" {
		if err = lvm.CheckMove(q.since); err != nil {
			return q, err
		}
	}
	var wrong [2]error
	q.span.from, wrong[0] = strconv.ParseInt(v.Get("from"), 10, 64)
	q.span.to, wrong[1] = strconv.ParseInt(v.Get("to"), 10, 64)
	if errors.Join(wrong[:]...) != nil || q.span.from < 0 || q.span.to < q.span.from || len(q.uuid) > 64 || len(q.claim) > maxClaim {
		return q, lvm.Errorf(lvm.KindInvalid, "the request names no range of a volume")
	}
	if (q.claim != "") != q.id.IsSnapshot() || q.claim != "" && q.since != "" {
		return q, lvm.Errorf(lvm.KindInvalid, "the request is for a snapshot without a claim, or with a round, or for a volume with a claim")
	}
	return q, nil
}

// mode is how to open what is sent: nothing may write a volume meanwhile, and nothing can write a snapshot.
func (q query) mode() openMode {
	if q.claim != "" {
		return readShared
	}
	return readAlone
}

// sizeHeader has the size of the device in bytes.
const sizeHeader = "Nodelvm-Device-Size"

// changedHeader has how many bytes of it changed, if the request asked for changes alone.
const changedHeader = "Nodelvm-Changed-Size"
