package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"slipway/internal/client/rest"
)

type mcpCommand struct {
	Serve   serveMCP   `cmd:"" help:"Speak MCP on standard input and output, as the signed-in user. Agents start it."`
	Install installMCP `cmd:"" help:"Add Slipway to the settings of an agent."`
}

// narrowed are the flags that limit what an agent may do.
type narrowed struct {
	Read  bool     `env:"-" help:"Let the agent read only."`
	Sites []string `env:"-" help:"Let it see these sites alone, by their ids or slugs, separated by commas." placeholder:"SITE"`
}

// query is what limits an agent in the server's address.
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

// The bounds of the bridge.
const (
	maxMessage = 1 << 20 // bytes of one message: the server's own bound
	mcpCalls   = 4       // at once: the server's own bound for an account
)

// bridge carries messages between an agent and the server.
type bridge struct {
	c     *rest.Client
	query string

	mu      sync.Mutex // guards both
	e       *Env
	version string // of the protocol, once it is agreed on
}

// message is what the bridge needs of one.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
}

// Run carries messages, one per line, until the input ends.
func (s serveMCP) Run(ctx context.Context, e *Env) error {
	c, err := s.client(e)
	if err != nil {
		return failure(err)
	}
	q, err := s.query(ctx, c)
	if err != nil {
		return failure(err)
	}
	b := &bridge{c: c, query: q.Encode(), e: e}
	group, ctx := errgroup.WithContext(ctx)
	// share: none, this process is one user's
	group.SetLimit(mcpCalls)
	lines := bufio.NewScanner(e.In)
	lines.Buffer(nil, maxMessage)
	for lines.Scan() {
		line := bytes.Clone(bytes.TrimSpace(lines.Bytes()))
		if len(line) == 0 {
			continue
		}
		var m message
		if json.Unmarshal(line, &m) == nil && m.Method == "initialize" { // what follows depends on its answer
			if err := b.carry(ctx, line); err != nil {
				return failure(err)
			}
			continue
		}
		group.Go(func() error { return b.carry(ctx, line) })
		if ctx.Err() != nil {
			break
		}
	}
	err = lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = errors.New("a message is larger than 1 MiB")
	}
	return failure(errors.Join(group.Wait(), err))
}

// carry sends one message to the server, and its answer back. Only a broken output is an error: what else goes wrong the agent is told.
func (b *bridge) carry(ctx context.Context, line []byte) error {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return b.tell(json.RawMessage("null"), -32700, "The message is not JSON")
	}
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	b.mu.Lock()
	version := b.version
	b.mu.Unlock()
	if m.Params.Meta.Version != "" {
		version = m.Params.Meta.Version
	}
	if version != "" && m.Method != "initialize" {
		h.Set("Mcp-Protocol-Version", version)
	}
	if m.Method != "" {
		h.Set("Mcp-Method", m.Method)
	}
	for _, name := range []string{m.Params.Name, m.Params.URI} {
		if name != "" && !strings.ContainsAny(name, "\r\n") {
			h.Set("Mcp-Name", name)
			break
		}
	}
	path := "/mcp"
	if b.query != "" {
		path += "?" + b.query
	}
	status, answer, err := b.c.Post(ctx, path, h, line)
	asks := len(m.ID) > 0 && string(m.ID) != "null" && m.Method != ""
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil && asks:
		return b.tell(m.ID, -32000, failure(err).Error())
	case err != nil || len(answer) == 0 || !asks:
		return nil
	}
	var reply struct {
		Version string          `json:"jsonrpc"`
		Result  json.RawMessage `json:"result"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal(answer, &reply) != nil || reply.Version == "" { // the API's own refusal
		return b.tell(m.ID, -32000, failure(rest.Refusal(status, answer)).Error())
	}
	if m.Method == "initialize" {
		var result struct{ ProtocolVersion string }
		if json.Unmarshal(reply.Result, &result) == nil {
			b.mu.Lock()
			b.version = result.ProtocolVersion
			b.mu.Unlock()
		}
	}
	return b.print(answer)
}

// tell answers a message with an error.
func (b *bridge) tell(id json.RawMessage, code int, text string) error {
	answer, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text}})
	if err != nil {
		return err
	}
	return b.print(answer)
}

// print writes a message as one line.
func (b *bridge) print(text []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return fmt.Errorf("the server's answer is no JSON: %w", err)
	}
	line.WriteByte('\n')
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.e.Out.Write(line.Bytes())
	return err
}
