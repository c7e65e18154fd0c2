package recovery

import (
	"context"
	"fmt"
	"io"

	"slipway/internal/operator/cleanup"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/gc"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/operation"
)

// Collect has the service that runs on the data directory delete what nothing refers to, and prints what that freed.
func Collect(ctx context.Context, s installation.Store, out io.Writer) error {
	var freed gc.Freed
	err := inService(ctx, s, "", "", out, &freed, func(tx *db.Tx, ops *operation.Operations, _ string) (operation.Operation, error) {
		return cleanup.BeginTx(ctx, tx, ops)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Files      %s freed: %d that nothing refers to\n", text.Size(freed.Bytes), freed.Files)
	if freed.Young > 0 {
		fmt.Fprintf(out, "           %s more follow: %d that were stored less than %s ago, which a deployment may be about to use\n",
			text.Size(freed.YoungBytes), freed.Young, gc.Grace)
	}
	switch {
	case s.Database != "":
		fmt.Fprintln(out, "Database   PostgreSQL frees its space by itself")
	case freed.Rewrite:
		fmt.Fprintln(out, "Database   its file can't return free space: stop slipway serve, and run slipway database compact")
	default:
		fmt.Fprintf(out, "Database   %s freed\n", text.Size(freed.Database))
	}
	return nil
}
