// Command docrun runs the commands of documentation pages in the running lab, as TestDocs does:
//
//	go run ./cmd/docrun tutorial.md howto/expand.md
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/docrun"
	"github.com/nodelvm/nodelvm/test/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "docrun:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, paths []string) error {
	l, err := lab.Open("")
	if err != nil {
		return err
	}
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	for _, path := range paths {
		page, err := docrun.Find(path)
		if err != nil {
			return err
		}
		fmt.Println(path)
		err = docrun.Follow(ctx, l, top, page, func(format string, args ...any) { fmt.Printf("  "+format+"\n", args...) })
		if err != nil {
			return fmt.Errorf("docs/%s: %w", path, err)
		}
	}
	return nil
}
