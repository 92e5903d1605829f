package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/nodelvm/nodelvm/api"
)

// right is one verb on one resource that the chart's ClusterRole or Role gives the driver's account, or must not give.
type right struct {
	group, resource, verb string
	name                  string // of the one object; "" for all
	own                   bool   // in the driver's own namespace only
	snapshots             bool   // only where csi-snapshotter runs
	withheld              bool   // the account must not have it
}

func (r right) String() string {
	what := r.resource
	if r.group != "" {
		what += "." + r.group
	}
	if r.name != "" {
		what += " " + r.name
	}
	return r.verb + " " + what
}

// rights returns the rights that the chart gives; a test compares the two. One more shows whether the API server withholds any.
func rights() (list []right) {
	add := func(r right, verbs ...string) {
		for _, r.verb = range verbs {
			list = append(list, r)
		}
	}
	const storage, snapshot = "storage.k8s.io", api.SnapshotGroup
	add(right{resource: "persistentvolumes"}, "get", "list", "watch", "create", "patch", "delete")
	add(right{resource: "persistentvolumeclaims"}, "get", "list", "watch", "update", "patch")
	add(right{resource: "persistentvolumeclaims/status"}, "patch")
	add(right{group: "authentication.k8s.io", resource: "tokenreviews"}, "create")
	add(right{group: "authorization.k8s.io", resource: "subjectaccessreviews"}, "create")
	add(right{resource: "pods"}, "list")
	add(right{resource: "nodes"}, "get")
	add(right{resource: "events"}, "create", "patch")
	add(right{resource: "namespaces", name: "kube-system"}, "get")
	add(right{group: storage, resource: "storageclasses"}, "get", "list", "watch")
	add(right{group: storage, resource: "volumeattributesclasses"}, "get")
	add(right{group: storage, resource: "csinodes"}, "get")
	add(right{group: snapshot, resource: "volumesnapshots"}, "get", "list", "watch", "update")
	add(right{group: snapshot, resource: "volumesnapshotcontents"}, "get", "list", "watch")
	add(right{group: snapshot, resource: "volumesnapshotcontents", snapshots: true}, "update", "patch")
	add(right{group: snapshot, resource: "volumesnapshotcontents/status", snapshots: true}, "update", "patch")
	add(right{group: snapshot, resource: "volumesnapshotclasses", snapshots: true}, "get", "list", "watch")
	add(right{group: storage, resource: "csistoragecapacities", own: true}, "get", "list", "watch", "create", "update", "delete")
	add(right{resource: "pods", own: true}, "get")
	add(right{resource: "secrets", withheld: true}, "list")
	return list
}

// wrongRights returns the rights that the driver's account lacks, and those that it should not have. It asks the API server about each.
func (c *cluster) wrongRights(ctx context.Context, f *facts) ([]right, error) {
	namespace, account, ok := f.account()
	switch {
	case f.unreadable[theDaemonSets]:
		return nil, errors.New("cannot read the DaemonSet that names it")
	case !ok:
		return nil, nil // checkDaemonSet reports that
	}
	all := rights()
	allowed := make([]bool, len(all))
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(pagesAtOnce)
	for i, r := range all {
		if r.snapshots && f.container("csi-snapshotter") == nil {
			allowed[i] = true
			continue
		}
		asking.Go(func() (err error) {
			allowed[i], err = c.allowed(ctx, namespace, account, r)
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		return nil, err
	}
	var wrong []right
	for i, r := range all {
		if allowed[i] == r.withheld {
			wrong = append(wrong, r)
		}
	}
	return wrong, nil
}

// allowed checks one right with a SubjectAccessReview.
func (c *cluster) allowed(ctx context.Context, namespace, account string, r right) (bool, error) {
	resource, sub, _ := strings.Cut(r.resource, "/")
	attributes := &authorizationv1.ResourceAttributes{Group: r.group, Resource: resource, Subresource: sub, Verb: r.verb, Name: r.name}
	if r.own {
		attributes.Namespace = namespace
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               fmt.Sprintf("system:serviceaccount:%s:%s", namespace, account),
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		ResourceAttributes: attributes,
	}}
	err := c.api.Post().AbsPath("/apis/authorization.k8s.io/v1/subjectaccessreviews").Body(review).Do(ctx).Into(review)
	return review.Status.Allowed, err
}
