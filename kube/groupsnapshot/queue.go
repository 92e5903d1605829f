package groupsnapshot

import "k8s.io/client-go/util/workqueue"

// item is a content that waits for its next action.
type item struct {
	namespace string // of its VolumeGroupSnapshot
	name      string
}

// fairQueue is a workqueue.Queue that takes one content of each waiting namespace in turn. An action can wait for disks for minutes: the group
// snapshots of one namespace, however many fail, delay an action for another's by one of theirs.
type fairQueue struct {
	waiting    map[string][]string // names by namespace, each in order of arrival
	namespaces []string            // those that wait, the next first
	count      int
}

func newQueue() workqueue.TypedDelayingInterface[item] {
	fair := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[item]{Queue: &fairQueue{waiting: map[string][]string{}}})
	return workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[item]{Queue: fair})
}

// Touch implements workqueue.Queue: an item that is added again keeps its place.
func (*fairQueue) Touch(item) {}

// Push implements workqueue.Queue.
func (q *fairQueue) Push(i item) {
	names := q.waiting[i.namespace]
	if len(names) == 0 {
		q.namespaces = append(q.namespaces, i.namespace)
	}
	q.waiting[i.namespace] = append(names, i.name)
	q.count++
}

// Len implements workqueue.Queue.
func (q *fairQueue) Len() int { return q.count }

// Pop implements workqueue.Queue; something waits.
func (q *fairQueue) Pop() item {
	next := item{namespace: q.namespaces[0]}
	names := q.waiting[next.namespace]
	next.name, names, q.namespaces = names[0], names[1:], q.namespaces[1:]
	if len(names) == 0 {
		delete(q.waiting, next.namespace)
	} else {
		q.waiting[next.namespace] = names
		q.namespaces = append(q.namespaces, next.namespace)
	}
	q.count--
	return next
}
