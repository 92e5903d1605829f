// Package kubetest has the objects and the API server that the tests of kube and its packages share. Only tests import it.
package kubetest
