package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/report"
)

// pagesAtOnce limits concurrent requests.
const pagesAtOnce = 16

// answer is the status page of one node's driver, or why there is none.
type answer struct {
	node string
	pod  string
	page report.Node // meaningless if err is not nil
	err  error
}

// incomplete returns why the node's report may be incomplete, or "" if it lists all that is on the node's disks.
func (a answer) incomplete() string {
	switch unread := a.groupsUnread(); {
	case a.err != nil:
		return a.err.Error()
	case a.page.NotReady != "":
		return "the driver is not ready: " + a.page.NotReady
	case unread != "":
		return unread
	case len(a.page.Unread) > 0:
		return "cannot read a disk: " + strings.Join(a.page.Unread, "; ")
	}
	for _, u := range a.page.Unaccepted {
		if u.Recorded {
			return fmt.Sprintf("the driver ignores %s, which has the physical volume %s of this node: %s", u.Device, u.PV, u.Reason)
		}
	}
	return ""
}

// groupsUnread returns why a node that answers lists no group at all, or "" if it could read them.
func (a answer) groupsUnread() string {
	for _, text := range a.page.Unknown {
		if strings.HasPrefix(text, report.UnknownGroups) {
			return text
		}
	}
	return ""
}

// answerOf returns a node's answer; nil: no driver pod runs on the node.
func answerOf(answers []answer, node string) *answer {
	return find(answers, func(a *answer) bool { return a.node == node })
}

// volume returns a volume that the node reports, by handle; nil: it does not report it.
func (a *answer) volume(handle string) *report.Volume {
	return find(a.page.Volumes, func(v *report.Volume) bool { return v.ID == handle })
}

// answers reads the status page of each driver pod, ordered by node. A node that does not answer has an answer with an error. A node
// may have two pods during an update: the first answer is the one that lists all that is on the disks, if one does.
func (c *cluster) answers(ctx context.Context, pods []corev1.Pod, classes []storagev1.StorageClass) []answer {
	query := map[string]map[string]string{}
	for _, class := range classes {
		query[class.Name] = class.Parameters
	}
	list := make([]answer, len(pods))
	var asking errgroup.Group
	asking.SetLimit(pagesAtOnce)
	for i, pod := range pods {
		asking.Go(func() error {
			list[i] = answer{node: pod.Spec.NodeName, pod: pod.Name}
			list[i].page, list[i].err = c.page(ctx, &pod, query)
			return nil
		})
	}
	_ = asking.Wait() // the answers hold the errors
	sortAnswers(list)
	return list
}

func sortAnswers(list []answer) {
	rank := func(a answer) int { return min(len(a.incomplete()), 1) }
	slices.SortFunc(list, func(a, b answer) int {
		return cmp.Or(strings.Compare(a.node, b.node), cmp.Compare(rank(a), rank(b)), strings.Compare(a.pod, b.pod))
	})
}

// page reads one node's status page through a port that the API server forwards to the driver's pod.
func (c *cluster) page(ctx context.Context, pod *corev1.Pod, classes map[string]map[string]string) (page report.Node, err error) {
	if pod.Status.Phase != corev1.PodRunning {
		return page, fmt.Errorf("the driver's pod %s is %s", pod.Name, pod.Status.Phase)
	}
	ctx, cancel := context.WithTimeout(ctx, c.nodeTimeout)
	defer cancel()
	target := url.URL{Scheme: "http", Host: "localhost", Path: report.Path, RawQuery: report.Query(classes).Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return page, err
	}
	reply, err := c.client(pod, portOf(pod)).Do(request)
	switch {
	case isForbidden(err):
		return page, fmt.Errorf("you may not read the driver's status page: you need the right to create pods/portforward in the namespace %s", pod.Namespace)
	case errors.Is(err, context.DeadlineExceeded):
		return page, fmt.Errorf("the driver (pod %s) has not answered within %s", pod.Name, c.nodeTimeout)
	case err != nil:
		return page, fmt.Errorf("the driver (pod %s) does not answer: %w", pod.Name, withoutURL(err))
	}
	defer func() { _ = reply.Body.Close() }() // readPage has returned any error
	return readPage(pod.Name, reply)
}

// withoutURL returns what net/http's client says without the request: its URL has the parameters of every class.
func withoutURL(err error) error {
	if of := (*url.Error)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}

// readPage parses the answer of the driver in a pod.
func readPage(pod string, reply *http.Response) (page report.Node, err error) {
	if reply.StatusCode == http.StatusNotFound {
		return page, fmt.Errorf("the driver in pod %s has no status page: it is older than this plugin", pod)
	}
	text, err := io.ReadAll(io.LimitReader(reply.Body, pageBytes+1))
	if err != nil || reply.StatusCode != http.StatusOK {
		return page, fmt.Errorf("the driver in pod %s answers %s: %w", pod, reply.Status, cmp.Or(err, errors.New(printable.Text(strings.TrimSpace(string(text[:min(len(text), refusalBytes)]))))))
	}
	if values := bytes.Count(text, []byte(",")); len(text) > pageBytes || values > pageValues {
		return page, fmt.Errorf("the answer of the driver in pod %s is larger than the status page of any node: more than %d bytes or %d values", pod, pageBytes, pageValues)
	}
	if err := json.Unmarshal(text, &page); err != nil {
		return report.Node{}, fmt.Errorf("cannot parse the answer of the driver in pod %s: %w", pod, err)
	}
	printable.Strings(reflect.ValueOf(&page).Elem())
	return page, nil
}

// Limits of a node's answer: no status page and no error message is larger. A list element of two bytes in JSON takes 200 or more
// in memory, so the number of values is limited as well.
const (
	pageBytes    = 16 << 20
	pageValues   = 400_000
	refusalBytes = 1 << 10
)

// isForbidden reports whether the API server refused to forward the port. The dialers return that only as text.
func isForbidden(err error) bool {
	return err != nil && (apierrors.IsForbidden(err) || strings.Contains(err.Error(), "is forbidden"))
}

// portOf returns the port of the status page: the container port named http.
func portOf(pod *corev1.Pod) string {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if c.Name == "nodelvm" && p.Name == "http" {
				return strconv.Itoa(int(p.ContainerPort))
			}
		}
	}
	return report.Port
}
