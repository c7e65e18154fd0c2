package main

import (
	"context"
	"os"

	"slipway/internal/operator/admin"
)

type nodeCommand struct {
	List      nodeList      `cmd:"" help:"List the nodes of this installation with state, roles, version and clock."`
	AcceptKey nodeAcceptKey `cmd:"" name:"accept-key" help:"Make the secrets.key of the data directory the installation's key, if the old one is lost for good."`
}

type nodeList struct{ common }

// Run lists the nodes.
func (n nodeList) Run(ctx context.Context) error { return admin.ListNodes(ctx, n.store(), os.Stdout) }

type nodeAcceptKey struct{ common }

// Run accepts the key; the service is restarted after it.
func (n nodeAcceptKey) Run(ctx context.Context) error {
	return admin.AcceptKey(ctx, n.store(), os.Stdout)
}
