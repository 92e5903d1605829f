package kubeclient

// ObjectKey identifies an object in a queue of work.
type ObjectKey struct {
	Kind string
	Key  string // name or, for an object in a namespace, namespace/name, as KeyOfObject and KeyOf return it
}

func (k ObjectKey) String() string { return k.Kind + " " + k.Key }
