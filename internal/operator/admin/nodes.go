package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"slipway/internal/operator/doctor"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/platform/node"
	"slipway/internal/platform/text"
	"slipway/internal/program/placement"
	"slipway/internal/program/storage"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
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
	fmt.Fprintf(out, "Node %s is draining: other nodes take over its programs. Sites with files or databases there "+
		"stay: %d. slipway node list shows how many are left\n", n.Name, pinned[n.ID])
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

// AcceptStorage makes a directory the storage of sites that all nodes mount; an empty one says that each node has its own.
func AcceptStorage(ctx context.Context, s installation.Store, dir string, out io.Writer) error {
	d, err := openStopped(ctx, s)
	if err != nil {
		return err
	}
	defer d.Close()
	if dir != "" {
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
	}
	if err := node.AcceptStorage(ctx, d, dir); err != nil {
		return err
	}
	if dir == "" {
		fmt.Fprintln(out, "Each node has storage of its own again. Move what sites have stored to the data directory of their node "+
			"before it starts")
		return nil
	}
	fmt.Fprintf(out, "%s is the storage of all sites: start every node with --storage and this directory, wherever it is mounted there\n", dir)
	return nil
}

// AcceptFiles makes what --blobs names the installation's files.
func AcceptFiles(ctx context.Context, s installation.Store, out io.Writer) error {
	if err := s.CheckBlobs(); err != nil {
		return fmt.Errorf("--blobs: %w", err)
	}
	d, err := openStopped(ctx, s)
	if err != nil {
		return err
	}
	defer d.Close()
	dir, remote := s.FilesAt()
	if err := node.AcceptFiles(ctx, d, dir, remote); err != nil {
		return err
	}
	fmt.Fprintf(out, "The files of this installation are in %s\n", cmp.Or(dir, remote))
	return nil
}

// openStopped opens the database of an installation none of whose nodes runs.
func openStopped(ctx context.Context, s installation.Store) (*db.DB, error) {
	d, err := s.OpenDatabase(ctx, nil)
	if err != nil {
		return nil, err
	}
	if _, err := stopped(ctx, s, d); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// stopped returns the nodes, or an error if one of them runs.
func stopped(ctx context.Context, s installation.Store, d *db.DB) ([]node.Node, error) {
	list, err := doctor.NodesOf(ctx, s, d)
	if at := slices.IndexFunc(list, func(n node.Node) bool { return n.State != node.Down }); err == nil && at >= 0 {
		err = fmt.Errorf("node %s runs: stop all nodes first", list[at].Name)
	}
	return list, err
}

// ForgetNode takes a node that will never return off the list and frees its sites. What they have there alone is lost, which
// has to be confirmed.
func ForgetNode(ctx context.Context, s installation.Store, name string, confirmed bool, out io.Writer) error {
	return withAccounts(ctx, s, func(d *db.DB, accounts *account.Accounts) error {
		n, err := node.Find(ctx, d, name)
		if err != nil {
			return err
		}
		if n.State != node.Down {
			return fmt.Errorf("node %s runs: stop it first", n.Name)
		}
		if d.Single() {
			return errors.New("with SQLite there is one node, which can't be forgotten")
		}
		_, pinned, err := placement.Counts(ctx, d)
		if err != nil {
			return err
		}
		lost := pinned[n.ID]
		if lost > 0 && !confirmed {
			return fmt.Errorf("node %s alone has files or databases of %s, which are lost with it: start it again, also from its data "+
				"directory on another machine, or forget it with --yes and restore from backups", n.Name, text.Count(lost, "site"))
		}
		var freed int64
		err = d.Write(ctx, func(tx *db.Tx) error {
			if err := node.ForgetTx(ctx, tx, n.ID); err != nil {
				return err
			}
			var there []id.Site
			if freed, there, err = placement.ForgetNodeTx(ctx, tx, n.ID); err != nil {
				return err
			}
			for _, site := range there {
				if err := storage.LostTx(ctx, tx, site); err != nil {
					return err
				}
			}
			return accounts.AuditTx(ctx, tx, audit.Actor{Via: "the command line"}, audit.Event{
				Action: "node.forgotten", Subject: n.ID, Detail: fmt.Sprintf("%s, with files or databases of %s", n.Name, text.Count(lost, "site")),
			})
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "Node %s is forgotten; %s can run on other nodes", n.Name, text.Count(int(freed), "site"))
		if lost > 0 {
			fmt.Fprintf(out, ", %d of them without the files and databases that were there: restore them from backups", lost)
		}
		fmt.Fprintln(out)
		return nil
	})
}
