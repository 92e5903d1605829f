package lab

// controlPlaneNames are the processes of the control plane, in the order of their start.
var controlPlaneNames = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
