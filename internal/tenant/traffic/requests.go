package traffic

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/account"
)

// RequestFilter selects requests of an access log. The zero value selects the newest.
type RequestFilter struct {
	From, To db.Time // Optional: 0 is unbounded. To is exclusive.
	Failed   bool    // only status 4xx and 5xx
	Search   string  // part of the method, path, host, status or user agent, ignoring case
	After    Place   // only requests stored after it. Optional.
	Limit    int     // of the newest matches
}

// Place is a position in the log. The zero value is its start.
type Place struct {
	At db.Time
	ID string
}

// String formats a place for ParsePlace.
func (p Place) String() string { return fmt.Sprintf("%d.%s", p.At, p.ID) }

// ParsePlace parses a place, or returns the zero value.
func ParsePlace(s string) Place {
	at, id, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(at, 10, 64)
	if err != nil || n < 0 || len(id) > 64 {
		return Place{}
	}
	return Place{db.Time(n), id}
}

// flushed is the maximum delay until a request's line is stored.
const flushed = time.Minute

// chunksSearched caps the chunks of ten seconds read for one page.
const chunksSearched = 400

// Requests returns requests from the access log of the owner's site, oldest first, and the place up to which it was
// read. It searches a limited part of the log, starting with the newest. For other owners' sites it returns none.
func (t *Traffic) Requests(
	ctx context.Context, owner account.OwnerID, site id.Site, f RequestFilter,
) (found []visit.Line, place Place, err error) {
	place = f.After
	type chunk struct {
		Place
		body string
	}
	to := db.Time(1 << 62)
	if f.To > 0 {
		to = f.To.Add(flushed)
	}
	next := Place{to, ""}
	for read := 0; read < chunksSearched; read += chunksRead {
		rows, err := t.c.DB.Query(ctx, `
			SELECT l.at, l.id, l.body FROM access_log l JOIN open_sites s ON s.id = l.site_id
			WHERE l.site_id = $1 AND s.owner_id = $2 AND (l.at < $3 OR l.at = $3 AND l.id < $4)
				AND (l.at > $5 OR l.at = $5 AND l.id > $6) AND l.at >= $7
			ORDER BY l.at DESC, l.id DESC LIMIT $8`, site, owner, next.At, next.ID, f.After.At, f.After.ID, f.From, chunksRead)
		list, err := db.Collect(rows, err, func(s db.Scanner) (c chunk, err error) { return c, s.Scan(&c.At, &c.ID, &c.body) })
		if err != nil {
			return nil, f.After, fmt.Errorf("read requests: %w", err)
		}
		for i, c := range list {
			if read == 0 && i == 0 {
				place = c.Place
			}
			lines, err := f.matching(c.body)
			if err != nil {
				return nil, f.After, fmt.Errorf("read requests: %w", err)
			}
			found = append(found, lines...)
			next = c.Place
		}
		if len(list) < chunksRead || len(found) >= f.Limit {
			break
		}
	}
	slices.SortStableFunc(found, func(a, b visit.Line) int { return a.Time.Compare(b.Time) })
	return found[max(0, len(found)-f.Limit):], place, nil
}

// matching returns the lines of a chunk that match the filter.
func (f RequestFilter) matching(body string) (found []visit.Line, err error) {
	b, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return nil, err
	}
	in, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	search := strings.ToLower(f.Search)
	for dec := json.NewDecoder(io.LimitReader(in, maxChunk)); ; {
		var l visit.Line
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		at := db.At(l.Time)
		text := strings.ToLower(fmt.Sprint(l.Method, " ", l.Host, l.Path, " ", l.Status, " ", l.Agent))
		switch {
		case l.Status == 0, f.From > 0 && at < f.From, f.To > 0 && at >= f.To, f.Failed && l.Status < 400, !strings.Contains(text, search):
		default:
			found = append(found, l)
		}
	}
}
