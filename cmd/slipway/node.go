//go:build linux

package main

import (
	"context"
	"os"

	"slipway/internal/operator/admin"
)

type nodeCommand struct {
	List      nodeList      `cmd:"" help:"List the nodes of this installation with state, roles, version and clock."`
	Drain     nodeDrain     `cmd:"" help:"Have other nodes take over the programs of a node, before it is stopped for long. Sites with files or databases there stay."`
	Resume    nodeResume    `cmd:"" help:"Let a draining node take programs again. A restart does the same."`
	AcceptKey nodeAcceptKey `cmd:"" name:"accept-key" help:"Make the secrets.key of the data directory the installation's key, if the old one is lost for good."`
}

type nodeList struct{ common }

// Run lists the nodes.
func (n nodeList) Run(ctx context.Context) error { return admin.ListNodes(ctx, n.store(), os.Stdout) }

type nodeDrain struct {
	common
	Node string `help:"Id or name of the node." required:"" placeholder:"NODE"`
}

// Run drains the node.
func (n nodeDrain) Run(ctx context.Context) error {
	return admin.DrainNode(ctx, n.store(), n.Node, false, os.Stdout)
}

type nodeResume struct {
	common
	Node string `help:"Id or name of the node." required:"" placeholder:"NODE"`
}

// Run ends the draining.
func (n nodeResume) Run(ctx context.Context) error {
	return admin.DrainNode(ctx, n.store(), n.Node, true, os.Stdout)
}

type nodeAcceptKey struct{ common }

// Run accepts the key; the service is restarted after it.
func (n nodeAcceptKey) Run(ctx context.Context) error {
	return admin.AcceptKey(ctx, n.store(), os.Stdout)
}
