package cli

import (
	"context"
	"net/url"
	"strings"

	"slipway/internal/client/bridge"
	"slipway/internal/client/rest"
)

type mcpCommand struct {
	Serve   serveMCP   `cmd:"" help:"Speak MCP on standard input and output, as the signed-in user. Agents start it."`
	Install installMCP `cmd:"" help:"Add Slipway to the settings of an agent."`
}

// narrowed holds the flags that restrict an agent.
type narrowed struct {
	Read  bool     `env:"-" help:"Let the agent read only."`
	Sites []string `env:"-" help:"Let it see these sites alone, by their ids or slugs, separated by commas." placeholder:"SITE"`
}

// query returns the URL parameters that restrict an agent.
func (n narrowed) query(ctx context.Context, c *rest.Client) (url.Values, error) {
	q := url.Values{}
	if n.Read {
		q.Set("mode", "read")
	}
	var ids []string
	for _, name := range n.Sites {
		s, err := siteNamed(ctx, c, name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, s.ID)
	}
	if len(ids) > 0 {
		q.Set("sites", strings.Join(ids, ","))
	}
	return q, nil
}

type serveMCP struct {
	target
	narrowed
}

// Run forwards messages, one per line, until the input ends.
func (s serveMCP) Run(ctx context.Context, e *Env) error {
	c, err := s.client(e)
	if err != nil {
		return failure(err)
	}
	q, err := s.query(ctx, c)
	if err != nil {
		return failure(err)
	}
	return failure(bridge.Run(ctx, c, q.Encode(), e.In, e.Out, func(err error) string { return failure(err).Error() }))
}
