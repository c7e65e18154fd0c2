package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
)

// fill inserts arguments into a path and returns the remaining ones and the idempotency key.
func fill(path string, args map[string]any) (filled string, rest map[string]any, idempotencyKey string) {
	rest = map[string]any{}
	for name, v := range args {
		text, _ := v.(string)
		switch place := "{" + name + "}"; {
		case strings.Contains(path, place):
			path = strings.ReplaceAll(path, place, url.PathEscape(text))
		case name == once.name:
			idempotencyKey = text
		case name == cursor.name:
		default:
			rest[name] = v
		}
	}
	return path, rest, idempotencyKey
}

func asQuery(args map[string]any) url.Values {
	q := url.Values{}
	for name, v := range args {
		if s, ok := v.(string); ok && s != "" {
			q.Set(name, s)
		}
	}
	return q
}

// request returns a tool's implementation that makes one request. Arguments that aren't in the path become the query or
// body.
func request(method, path string) work {
	return func(ctx context.Context, c *call, args map[string]any) (any, error) {
		path, rest, key := fill(path, args)
		var query url.Values
		var body any
		switch {
		case method == http.MethodGet || method == http.MethodDelete:
			query = asQuery(rest)
		case len(rest) > 0:
			body = rest
		}
		out, err := c.send(ctx, method, path, query, body, key)
		return mark(out), err
	}
}

// maxItems caps the items of a result. It is a power of two, so that halving it still yields whole pages.
const maxItems = 32

// pages returns a tool's implementation that lists a page with as many items as fit into a result, and the cursor of
// the next page.
func pages(path string) work {
	return func(ctx context.Context, c *call, args map[string]any) (any, error) {
		page, limit := 1, maxItems
		if at, ok := args[cursor.name].(string); ok {
			first, size, _ := strings.Cut(at, ".")
			page, _ = strconv.Atoi(first)
			limit, _ = strconv.Atoi(size)
			if page < 1 || limit < 1 || limit > maxItems || limit&(limit-1) != 0 {
				return nil, errCursor
			}
		}
		path, rest, _ := fill(path, args)
		query := asQuery(rest)
		for ; ; page, limit = 2*page-1, limit/2 {
			query.Set("page", strconv.Itoa(page))
			query.Set("limit", strconv.Itoa(limit))
			got, err := c.send(ctx, http.MethodGet, path, query, nil, "")
			if err != nil {
				return nil, err
			}
			list, _ := got.(map[string]any)
			out := map[string]any{"data": mark(list["data"])}
			about, _ := list["pagination"].(map[string]any)
			out["total"] = about["total"]
			if last, _ := about["totalPages"].(json.Number); last != "" {
				if n, err := last.Int64(); err == nil && int64(page) < n {
					out["nextCursor"] = strconv.Itoa(page+1) + "." + strconv.Itoa(limit)
				}
			}
			if text, err := encode(out); err != nil || len(text) <= maxResult || limit == 1 {
				return out, err
			}
		}
	}
}

var errCursor = &apiError{Message: "Invalid cursor", Details: "pass nextCursor of the previous result as it was", Code: "invalid_cursor"}

// whoami describes the caller without a request.
func whoami(_ context.Context, c *call, _ map[string]any) (any, error) {
	out := map[string]any{"user": string(c.caller.User), "scopes": c.caller.Scopes, "readOnly": c.narrowing.ReadOnly}
	if len(c.caller.Sites) > 0 {
		out["sites"] = c.caller.Sites
	}
	if c.caller.Team != "" {
		out["team"] = c.caller.Slug
	}
	if c.caller.Expires != db.Time(0) {
		out["expires"] = c.caller.Expires.String()
	}
	return out, nil
}

// getDeployment returns a deployment and the end of its log.
func getDeployment(ctx context.Context, c *call, args map[string]any) (any, error) {
	path, _, _ := fill("/deployments/{deployment}", args)
	got, err := c.send(ctx, http.MethodGet, path, nil, nil, "")
	if err != nil {
		return nil, err
	}
	log, err := lastLines(ctx, c, path+"/logs")
	if err != nil {
		return nil, err
	}
	return map[string]any{"deployment": mark(got), "log": fitting(log, 50, maxResult/2, true)}, nil
}

// Limits of log lines in a result, and of pages read to find the log's end.
const (
	mostLines = 200
	mostPages = 20
)

// buildLog returns the end of a deployment's log, or the lines after a number.
func buildLog(ctx context.Context, c *call, args map[string]any) (any, error) {
	path, _, _ := fill("/deployments/{deployment}/logs", args)
	after, ok := args[cursor.name].(string)
	if !ok {
		list, err := lastLines(ctx, c, path)
		return map[string]any{"log": fitting(list, mostLines, maxResult-1<<10, true)}, err
	}
	page, err := readLog(ctx, c, path, url.Values{"after": {after}})
	if err != nil {
		return nil, err
	}
	return following(page, mostLines)
}

// logPage is a page of a log. Its lines are decoded on demand, since a page may have 10,000 and a result few.
type logPage struct {
	Logs []json.RawMessage
	Next json.RawMessage // null on the last page
}

func (p logPage) more() bool { return len(p.Next) > 0 && string(p.Next) != "null" }

func readLog(ctx context.Context, c *call, path string, query url.Values) (page logPage, err error) {
	return page, c.sendFor(ctx, http.MethodGet, path, query, nil, "", &page)
}

// lines decodes lines of a page.
func lines(raw []json.RawMessage) (list []any, err error) {
	for _, one := range raw {
		var line any
		if err := read(bytes.NewReader(one), &line); err != nil {
			return nil, err
		}
		list = append(list, line)
	}
	return list, nil
}

// lastLines reads a log to its end and returns its last lines.
func lastLines(ctx context.Context, c *call, path string) ([]any, error) {
	var last []any
	after := "0"
	for range mostPages {
		page, err := readLog(ctx, c, path, url.Values{"after": {after}})
		if err != nil {
			return nil, err
		}
		more, err := lines(page.Logs[max(0, len(page.Logs)-mostLines):])
		if err != nil {
			return nil, err
		}
		last = append(last, more...)
		last = append([]any(nil), last[max(0, len(last)-mostLines):]...)
		if !page.more() {
			break
		}
		after = strings.Trim(string(page.Next), `"`)
	}
	return last, nil
}

// siteLog returns the output of a site's program.
func siteLog(ctx context.Context, c *call, args map[string]any) (any, error) {
	path, rest, _ := fill("/sites/{site}/logs", args)
	query := asQuery(rest)
	query.Set("limit", strconv.Itoa(mostLines))
	after, ok := args[cursor.name].(string)
	if ok {
		query.Set("after", after)
	}
	page, err := readLog(ctx, c, path, query)
	if err != nil {
		return nil, err
	}
	if ok {
		return following(page, mostLines)
	}
	list, err := lines(page.Logs)
	return map[string]any{"log": fitting(list, mostLines, maxResult-1<<10, true)}, err
}

// following returns the first lines of a page and the position after them.
func following(page logPage, limit int) (map[string]any, error) {
	list, err := lines(page.Logs[:min(limit, len(page.Logs))])
	if err != nil {
		return nil, err
	}
	shown := fitting(list, limit, maxResult-1<<10, false)
	out := map[string]any{"log": shown}
	if n := len(shown); n > 0 && (n < len(page.Logs) || page.more()) {
		if line, ok := list[n-1].(map[string]any); ok {
			if at, ok := line["n"].(json.Number); ok {
				out["nextCursor"] = at.String()
			}
		}
	}
	return out, nil
}

// fitting marks the first or last lines of a log, as many as fit into room bytes.
func fitting(list []any, limit, room int, last bool) []any {
	out := []any{}
	for i := range min(limit, len(list)) {
		line := list[i]
		if last {
			line = list[len(list)-1-i]
		}
		line = mark(line)
		text, err := encode(line)
		room -= len(text) + 1
		if err != nil || room < 0 {
			break
		}
		out = append(out, line)
	}
	if last {
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
	}
	return out
}
