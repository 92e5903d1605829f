package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// annotate changes annotations of a claim, if it is still the same claim. With dryRun the API server checks the request and changes nothing.
func (c *cluster) annotate(ctx context.Context, m moveChange, dryRun bool) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": m.claim.UID, "annotations": m.Annotations}})
	if err != nil {
		return err
	}
	request := c.api.Patch(types.MergePatchType).Namespace(m.Namespace).Resource("persistentvolumeclaims").Name(m.Claim).Param("fieldManager", "kubectl-nodelvm").Body(body)
	if dryRun {
		request = request.Param("dryRun", "All")
	}
	switch err := request.Do(ctx).Into(&corev1.PersistentVolumeClaim{}); {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("claim %s/%s cannot be annotated: %w; a move needs the right to patch persistentvolumeclaims in that namespace", m.Namespace, m.Claim, err)
	case err != nil:
		return fmt.Errorf("claim %s/%s cannot be annotated: %w", m.Namespace, m.Claim, err)
	}
	return nil
}

// annotateAll changes all claims or, as far as the API server can say beforehand, none.
func (c *cluster) annotateAll(ctx context.Context, w io.Writer, changes []moveChange, dryRun bool) error {
	for _, m := range changes {
		if err := c.annotate(ctx, m, true); err != nil {
			return fmt.Errorf("nothing was changed: %w", err)
		}
	}
	for _, m := range changes {
		if dryRun {
			if _, err := fmt.Fprintln(w, "would run: "+m.byHand()); err != nil {
				return err
			}
			continue
		}
		if err := c.annotate(ctx, m, false); err != nil {
			return fmt.Errorf("%w; claims before it in the plan are annotated: repeat the command", err)
		}
		if _, err := fmt.Fprintf(w, "persistentvolumeclaim/%s annotated\n", m.Claim); err != nil {
			return err
		}
	}
	return nil
}

var errNotConfirmed = errors.New("not confirmed: nothing was changed")

// confirm asks the user on the standard input, unless yes.
func confirm(cmd *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	in := cmd.InOrStdin()
	if file, is := in.(*os.File); is && !term.IsTerminal(int(file.Fd())) {
		return errors.New("the standard input is no terminal, so no user can be asked: give --yes to go on, or --dry-run to see the plan alone. Nothing was changed")
	}
	cmd.PrintErrf("%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}
