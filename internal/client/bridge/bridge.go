// Package bridge owns forwarding messages of the Model Context Protocol between an agent's pipes and the server's /mcp.
package bridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"slipway/internal/client/rest"
)

// Limits of the bridge.
const (
	maxMessage = 1 << 20 // bytes of one message; the server's limit
	maxCalls   = 4       // concurrent calls; the server's limit per account
)

// bridge forwards messages between an agent and the server.
type bridge struct {
	c     *rest.Client
	query string

	mu      sync.Mutex // guards session and version
	out     io.Writer
	version string // negotiated protocol version
}

// message holds the fields that the bridge reads.
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

// Run forwards messages, one per line, until the input ends. query restricts the agent; words describes an error in a
// sentence.
func Run(ctx context.Context, c *rest.Client, query string, in io.Reader, out io.Writer, words func(error) string) error {
	b := &bridge{c: c, query: query, out: out}
	group, ctx := errgroup.WithContext(ctx)
	// share: none, this process is one user's
	group.SetLimit(maxCalls)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxMessage)
	for lines.Scan() {
		line := bytes.Clone(bytes.TrimSpace(lines.Bytes()))
		if len(line) == 0 {
			continue
		}
		var m message
		if json.Unmarshal(line, &m) == nil && m.Method == "initialize" { // later messages depend on its result
			if err := b.carry(ctx, line, words); err != nil {
				return err
			}
			continue
		}
		group.Go(func() error { return b.carry(ctx, line, words) })
		if ctx.Err() != nil {
			break
		}
	}
	err := lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = errors.New("a message is larger than 1 MiB")
	}
	return errors.Join(group.Wait(), err)
}

// carry sends one message to the server and prints the response. It returns only errors of the output; other errors are
// reported to the agent.
func (b *bridge) carry(ctx context.Context, line []byte, words func(error) string) error {
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
		return b.tell(m.ID, -32000, words(err))
	case err != nil || len(answer) == 0 || !asks:
		return nil
	}
	var reply struct {
		Version string          `json:"jsonrpc"`
		Result  json.RawMessage `json:"result"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal(answer, &reply) != nil || reply.Version == "" { // an error of the API, not of MCP
		return b.tell(m.ID, -32000, words(rest.Refusal(status, answer)))
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

// tell sends the agent an error as the response to a message.
func (b *bridge) tell(id json.RawMessage, code int, text string) error {
	answer, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text}})
	if err != nil {
		return err
	}
	return b.print(answer)
}

func (b *bridge) print(text []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return fmt.Errorf("the server's answer is no JSON: %w", err)
	}
	line.WriteByte('\n')
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.out.Write(line.Bytes())
	return err
}
