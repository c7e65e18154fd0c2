//go:build linux

package main

import (
	"context"

	"slipway/internal/operator/admin"
	"slipway/internal/operator/flags"
)

type nodeCommand struct {
	List          nodeList          `cmd:"" help:"List the nodes of this installation with state, roles, version and clock."`
	Drain         nodeDrain         `cmd:"" help:"Have other nodes take over the programs of a node, before it is stopped for long. Sites with files or databases there stay."`
	Resume        nodeResume        `cmd:"" help:"Let a draining node take programs again. A restart does the same."`
	Forget        nodeForget        `cmd:"" help:"Take a node that will never return off the list, and free its sites."`
	AcceptStorage nodeAcceptStorage `cmd:"" name:"accept-storage" help:"Make a directory the installation's storage of sites, whatever it was before. Nothing is moved."`
	AcceptFiles   nodeAcceptFiles   `cmd:"" name:"accept-files" help:"Make what --blobs names the installation's files, whatever it was before. Nothing is moved."`
	AcceptKey     nodeAcceptKey     `cmd:"" name:"accept-key" help:"Make the secrets.key of the data directory the installation's key, if the old one is lost for good."`
}

type nodeList struct{ flags.Data }

// Run lists the nodes.
func (n nodeList) Run(ctx context.Context) error { return admin.ListNodes(ctx, n.Store(), stdout) }

type nodeDrain struct {
	flags.Data
	Node string `help:"Id or name of the node." required:"" placeholder:"NODE"`
}

// Run drains the node.
func (n nodeDrain) Run(ctx context.Context) error {
	return admin.DrainNode(ctx, n.Store(), n.Node, false, stdout)
}

type nodeResume struct {
	flags.Data
	Node string `help:"Id or name of the node." required:"" placeholder:"NODE"`
}

// Run ends draining.
func (n nodeResume) Run(ctx context.Context) error {
	return admin.DrainNode(ctx, n.Store(), n.Node, true, stdout)
}

type nodeAcceptStorage struct {
	flags.Data
	Storage string `help:"Directory that every node mounts. Without it each node has storage of its own again." placeholder:"DIR"`
}

// Run accepts the directory; restart the nodes afterwards.
func (n nodeAcceptStorage) Run(ctx context.Context) error {
	return admin.AcceptStorage(ctx, n.Store(), n.Storage, stdout)
}

type nodeAcceptFiles struct{ flags.Data }

// Run accepts the location of files; restart the nodes afterwards.
func (n nodeAcceptFiles) Run(ctx context.Context) error {
	return admin.AcceptFiles(ctx, n.Store(), stdout)
}

type nodeForget struct {
	flags.Data
	Node string `arg:"" help:"Id or name of the node."`
	Yes  bool   `help:"Also if sites have files or databases on it alone, which are lost then."`
}

// Run forgets the node.
func (n nodeForget) Run(ctx context.Context) error {
	return admin.ForgetNode(ctx, n.Store(), n.Node, n.Yes, stdout)
}

type nodeAcceptKey struct{ flags.Data }

// Run accepts the key; restart the service afterwards.
func (n nodeAcceptKey) Run(ctx context.Context) error {
	return admin.AcceptKey(ctx, n.Store(), stdout)
}
