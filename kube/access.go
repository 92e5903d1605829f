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
)

// The driver serves what names volumes and claims only to those whom the API server lets read it: a TokenReview tells who sent a
// bearer token, a SubjectAccessReview whether they may get the path (nonResourceURLs of a ClusterRole). k8s.io/apiserver has the
// same with more around it, and would nearly double the binary.

// How long an answer is good for. A right that was taken away ends within grantedFor; one that was given takes refusedFor.
const (
	grantedFor    = 5 * time.Minute
	refusedFor    = 30 * time.Second
	knownFor      = time.Hour // a token that was good once is reviewed again without a limit
	reviewTimeout = 5 * time.Second
	tokensKept    = 256
)

// Tokens that were never good may have this many reviews: who sends random ones costs the API server no more than that.
const (
	reviewsPerSecond = 2
	reviewsBurst     = 10
)

// Decision is what a reader may do.
type Decision int

// The decisions; without an error, one of these is always the API server's.
const (
	Unauthenticated Decision = iota // the token is nobody's
	Forbidden                       // the token is somebody's, who may not
	Granted
)

// ErrTooManyReviews says that so many unknown tokens came that this one was not looked at.
var ErrTooManyReviews = errors.New("too many unknown tokens are sent; try again")

// Access decides who may read this driver's pages.
type Access struct {
	client  *Client
	now     func() time.Time
	limit   flowcontrol.PassiveRateLimiter
	running singleflight.Group
	granted *cache.LRUExpireCache // by key, when it was granted
	refused *cache.LRUExpireCache // by key, the Decision; apart, so that random tokens displace no good one
}

// NewAccess makes an Access; it sends no request.
func NewAccess(client *Client) *Access {
	return &Access{
		client: client, now: time.Now, limit: flowcontrol.NewTokenBucketPassiveRateLimiter(reviewsPerSecond, reviewsBurst),
		granted: cache.NewLRUExpireCache(tokensKept), refused: cache.NewLRUExpireCache(tokensKept),
	}
}

// Review decides whether the token's owner may get the path. An error says that the API server could not be asked.
func (a *Access) Review(ctx context.Context, token, path string) (Decision, error) {
	sum := sha256.Sum256([]byte(path + "\x00" + token))
	key := string(sum[:]) // no token stays in memory
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
		decision, err := a.client.review(ctx, token, path)
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

// review asks the API server.
func (c *Client) review(ctx context.Context, token, path string) (Decision, error) {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := c.core.Post().AbsPath("/apis/authentication.k8s.io/v1/tokenreviews").Body(who).Do(ctx).Into(who); err != nil {
		return Unauthenticated, fmt.Errorf("the API server cannot be asked whose the token is: %w", err)
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
	if err := c.core.Post().AbsPath("/apis/authorization.k8s.io/v1/subjectaccessreviews").Body(may).Do(ctx).Into(may); err != nil {
		return Unauthenticated, fmt.Errorf("the API server cannot be asked whether %s may get %s: %w", user.Username, path, err)
	}
	if !may.Status.Allowed {
		return Forbidden, nil
	}
	return Granted, nil
}
