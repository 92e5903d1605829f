package kubeclient

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/nodelvm/nodelvm/api"
)

// nodeName is where a token that is bound to a pod names the pod's node.
const nodeName = "authentication.kubernetes.io/node-name"

// ReviewPeer returns the account and the node of a token with the audience api.AudienceMove; "": it has none.
func (c *Client) ReviewPeer(ctx context.Context, token string) (account, node string, err error) {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{api.AudienceMove}}}
	if err := c.Core.Post().AbsPath("/apis/authentication.k8s.io/v1/tokenreviews").Body(who).Do(ctx).Into(who); err != nil {
		return "", "", fmt.Errorf("cannot review the token: %w", err)
	}
	if extra := who.Status.User.Extra[nodeName]; who.Status.Authenticated && len(extra) == 1 {
		return who.Status.User.Username, extra[0], nil
	}
	return who.Status.User.Username, "", nil
}
