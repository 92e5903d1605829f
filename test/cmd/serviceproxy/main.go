// Command serviceproxy makes the Services of a lab's cluster reachable. kube-proxy does not run on the nodes' kernel, which lacks netfilter's
// tables. The addresses of all Services are on the lab's bridge, where each node's default route leads; serviceproxy listens there, and
// connects to a ready endpoint. It knows TCP alone, and no session affinity.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of a user that can read Services and EndpointSlices")
	device := flag.String("device", "", "network device that gets the addresses")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *device); err != nil {
		log.Fatal(err)
	}
}

// run follows the objects of the cluster until ctx ends.
func run(ctx context.Context, kubeconfig, device string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	services, slices := factory.Core().V1().Services(), factory.Discovery().V1().EndpointSlices()
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // the next round sees this change too
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
	}
	for _, informer := range []cache.SharedIndexInformer{services.Informer(), slices.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("cannot list %s", kind)
		}
	}
	p := &proxy{device: device, open: map[string]*listener{}}
	for {
		all, err := services.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		endpoints, err := slices.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		p.serve(ctx, routes(all, endpoints))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
