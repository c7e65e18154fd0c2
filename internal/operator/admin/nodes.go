package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"slipway/internal/operator/doctor"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/node"
	"slipway/internal/program/placement"
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
	sites, pinned, err := placement.Counts(ctx, d)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tSTATE\tROLES\tVERSION\tADDRESS\tCLOCK\tSITES\tPINNED\tLAST SEEN")
	for _, n := range list {
		address := n.Address
		if address == "" {
			address = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", n.ID, n.Name, n.State, strings.Join(n.Roles, ","), n.Version, address,
			n.Clock(), sites[n.ID], pinned[n.ID], n.SeenAt)
	}
	return w.Flush()
}

// DrainNode has a node give away the programs that can run on others, and take no new ones; with resume it takes them again.
func DrainNode(ctx context.Context, s installation.Store, name string, resume bool, out io.Writer) error {
	d, _, err := s.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	if d.Single() {
		return errors.New("with SQLite there is one node, and nothing to give its programs to")
	}
	state := node.Draining
	if resume {
		state = node.Up
	}
	n, err := node.Set(ctx, d, name, state)
	if err != nil {
		return err
	}
	if resume {
		fmt.Fprintf(out, "Node %s takes programs again\n", n.Name)
		return nil
	}
	_, pinned, err := placement.Counts(ctx, d)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Node %s is draining: other nodes take over its programs. %d sites have files or databases there and stay; "+
		"slipway node list shows how many are left\n", n.Name, pinned[n.ID])
	return nil
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
	fmt.Fprintf(out, "Key %s is this installation's key. What another key encrypted can't be read: set variables, tokens and secrets again\n",
		id)
	return nil
}
