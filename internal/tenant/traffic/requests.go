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

// RequestFilter says which requests of an access log are read. The zero value takes the newest ones.
type RequestFilter struct {
	From, To db.Time // Optional: 0 is no bound. To is exclusive.
	Failed   bool    // those with status 4xx and 5xx alone
	Search   string  // a text in the method, path, host, status or user agent, in any case
	After    Place   // only those that were stored later. Optional.
	Limit    int     // of the newest that match
}

// Place is how far a log was read: what is stored later comes behind it. The zero value is before everything.
type Place struct {
	At db.Time
	ID string
}

// String writes a place as ParsePlace reads it.
func (p Place) String() string { return fmt.Sprintf("%d.%s", p.At, p.ID) }

// ParsePlace reads a place; what is none is the zero value.
func ParsePlace(s string) Place {
	at, id, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(at, 10, 64)
	if err != nil || n < 0 || len(id) > 64 {
		return Place{}
	}
	return Place{db.Time(n), id}
}

// flushed is how much later than a request its line may be stored.
const flushed = time.Minute

// chunksSearched is how many chunks of ten seconds are read for one page at most.
const chunksSearched = 400

// Requests returns requests in the access log of the owner's site, the oldest first, and how far the log was read. For anybody else's
// site there are none. It looks at a bounded part of the log, from its newest end.
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

// matching returns the lines of a chunk that a filter takes.
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
