package admin

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"slipway/internal/operator/doctor"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/node"
)

// ListNodes prints the processes that serve an installation.
func ListNodes(ctx context.Context, s installation.Store, out io.Writer) error {
	d, _, err := s.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	list, err := doctor.NodesOf(ctx, s, d)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tSTATE\tROLES\tVERSION\tADDRESS\tCLOCK\tLAST SEEN")
	for _, n := range list {
		address := n.Address
		if address == "" {
			address = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.ID, n.Name, n.State, strings.Join(n.Roles, ","), n.Version, address, n.Clock(), n.SeenAt)
	}
	return w.Flush()
}

// AcceptKey makes the key in the data directory the installation's, for one whose key is lost for good.
func AcceptKey(ctx context.Context, s installation.Store, out io.Writer) error {
	d, err := db.Open(ctx, db.Config{URL: s.URL()})
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Migrate(ctx); err != nil {
		return err
	}
	id, err := node.AcceptKey(ctx, d, s.DataDir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Key %s is this installation's key. What another key encrypted can't be read: set variables, tokens and secrets again\n", id)
	return nil
}
