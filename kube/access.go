package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// Only readers whom the API server authorizes may read the pages that name volumes and claims: a TokenReview identifies the
// sender of a bearer token, and a SubjectAccessReview checks access to the path (nonResourceURLs of a ClusterRole).
// k8s.io/apiserver does this too, but would nearly double the binary.

// Lifetimes of cached reviews. A revoked right ends within grantedFor; a new right takes effect within refusedFor.
const (
	grantedFor    = 5 * time.Minute
	refusedFor    = 30 * time.Second
	knownFor      = time.Hour // a token that was granted once is reviewed again without a rate limit
	reviewTimeout = 5 * time.Second
	tokensKept    = 256
)

// Limit on the reviews of tokens that were never granted: random tokens cost the API server no more than this.
const (
	reviewsPerSecond = 2
	reviewsBurst     = 10
)

// Decision is the API server's decision about a reader.
type Decision int

// Without an error, a Decision is always the API server's.
const (
	Unauthenticated Decision = iota // no account has the token
	Forbidden                       // the token's account may not get the path
	Granted
)

// ErrTooManyReviews says that the rate limit on unknown tokens left this token unreviewed.
var ErrTooManyReviews = errors.New("too many unknown tokens; retry later")

// Access decides who may read this driver's pages.
type Access struct {
	client  *kubeclient.Client
	now     func() time.Time
	limit   flowcontrol.PassiveRateLimiter
	running singleflight.Group
	granted *cache.LRUExpireCache // time of the grant, by key
	refused *cache.LRUExpireCache // Decision by key; a separate cache, so that random tokens displace no granted one
}

// NewAccess creates an Access without sending a request.
func NewAccess(client *kubeclient.Client) *Access {
	return &Access{
		client: client, now: time.Now, limit: flowcontrol.NewTokenBucketPassiveRateLimiter(reviewsPerSecond, reviewsBurst),
		granted: cache.NewLRUExpireCache(tokensKept), refused: cache.NewLRUExpireCache(tokensKept),
	}
}

// Review decides whether the token's owner may get the path. An error says that the API server did not decide.
func (a *Access) Review(ctx context.Context, token, path string) (Decision, error) {
	sum := sha256.Sum256([]byte(path + "\x00" + token))
	key := string(sum[:]) // keeps the token itself out of memory
	when, known := a.granted.Get(key)
	if known && a.now().Sub(when.(time.Time)) < grantedFor { //nolint:forcetypeassert // nothing else is put there
		return Granted, nil
	}
	if decision, ok := a.refused.Get(key); ok {
		return decision.(Decision), nil //nolint:forcetypeassert // nothing else is put there
	}
	decision, err, _ := a.running.Do(key, func() (any, error) {
		if !known && !a.limit.TryAccept() {
			return Unauthenticated, ErrTooManyReviews
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		decision, err := reviewToken(a.client, ctx, token, path)
		if err != nil {
			return Unauthenticated, err
		}
		a.keep(key, decision)
		return decision, nil
	})
	return decision.(Decision), err //nolint:forcetypeassert // as returned above
}

func (a *Access) keep(key string, decision Decision) {
	if decision == Granted {
		a.granted.Add(key, a.now(), knownFor)
		return
	}
	a.granted.Remove(key)
	a.refused.Add(key, decision, refusedFor)
}

func reviewToken(c *kubeclient.Client, ctx context.Context, token, path string) (Decision, error) {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := c.Core.Post().AbsPath("/apis/authentication.k8s.io/v1/tokenreviews").Body(who).Do(ctx).Into(who); err != nil {
		return Unauthenticated, fmt.Errorf("cannot review the token: %w", err)
	}
	if !who.Status.Authenticated {
		return Unauthenticated, nil
	}
	user := who.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	may := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}}
	if err := c.Core.Post().AbsPath("/apis/authorization.k8s.io/v1/subjectaccessreviews").Body(may).Do(ctx).Into(may); err != nil {
		return Unauthenticated, fmt.Errorf("cannot check whether %s may get %s: %w", user.Username, path, err)
	}
	if !may.Status.Allowed {
		return Forbidden, nil
	}
	return Granted, nil
}
