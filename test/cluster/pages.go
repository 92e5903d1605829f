package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
)

// driverPort is the port of the driver's pages. Whoever forwards the port, as this file does, needs no token.
const driverPort = "9808"

// forwarding matches what kubectl port-forward prints when it listens.
var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) ->`)

// DriverPage reads a page of the driver in a pod.
func (c *Cluster) DriverPage(ctx context.Context, pod, path string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	said, says := io.Pipe()
	var errs strings.Builder
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := c.Lab.Kubectl(ctx, strings.NewReader(""), says, &errs, "port-forward", "-n", DriverNamespace, "pod/"+pod, ":"+driverPort)
		_ = says.CloseWithError(fmt.Errorf("kubectl port-forward has ended: %w", err)) // it never fails
	}()
	defer func() { cancel(); _ = said.Close(); <-ended }()
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if match := forwarding.FindStringSubmatch(lines.Text()); match != nil {
			go func() { _, _ = io.Copy(io.Discard, said) }() // so that kubectl's writes do not block
			return c.fetch(ctx, "http://"+match[1]+path)
		}
	}
	cancel()
	<-ended
	return "", fmt.Errorf("no port of pod %s is forwarded: %w: %s", pod, lines.Err(), errs.String())
}

// fetch gets a page from inside the lab's network namespace, where kubectl listens.
func (c *Cluster) fetch(ctx context.Context, url string) (string, error) {
	config, err := c.Lab.RESTConfig()
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: config.Dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	reply, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = reply.Body.Close() }() // the caller gets any error of reading
	text, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, reply.Status, text)
	}
	return string(text), err
}
