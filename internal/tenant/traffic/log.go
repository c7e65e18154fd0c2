package traffic

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/account"
)

// omitted is the log entry that stands for requests without a line.
type omitted struct {
	Time    time.Time `json:"time"`
	Omitted int64     `json:"omitted"`
}

// Details holds a site's data besides its counts.
type Details struct {
	Site    id.Site
	Names   map[visit.Name]int64
	Lines   []visit.Line
	Omitted int64 // requests without a line because there were too many
}

const (
	keepLog    = 7 * day
	siteLog    = 4 << 20 // stored bytes of one site's log
	allLogs    = 1 << 30 // of all sites
	maxChunk   = 4 << 20 // unpacked bytes of a row
	chunksRead = 20
)

// packLines returns each site's row for the access log, or "" for sites without lines. It reuses one compressor, which
// takes 800 kB.
func packLines(now db.Time, details []Details) ([]string, error) {
	bodies := make([]string, len(details))
	var b bytes.Buffer
	out := gzip.NewWriter(&b)
	for n, d := range details {
		if len(d.Lines) == 0 && d.Omitted == 0 {
			continue
		}
		b.Reset()
		out.Reset(&b)
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		for _, l := range d.Lines {
			l.Time = l.Time.UTC().Truncate(time.Millisecond)
			if err := enc.Encode(l); err != nil {
				return nil, err
			}
		}
		if d.Omitted > 0 {
			if err := enc.Encode(omitted{now.Time().UTC(), d.Omitted}); err != nil {
				return nil, err
			}
		}
		if err := out.Close(); err != nil {
			return nil, err
		}
		bodies[n] = base64.StdEncoding.EncodeToString(b.Bytes())
	}
	return bodies, nil
}

// addLines stores a row from packLines.
func addLines(ctx context.Context, tx *db.Tx, now db.Time, site id.Site, body string) error {
	if body == "" {
		return nil
	}
	_, err := tx.Exec(ctx, `INSERT INTO access_log (site_id, at, id, size, body) VALUES ($1, $2, $3, $4, $5)`, site,
		now, rand.Text(), len(body), body)
	return err
}

// Log writes the access log of the owner's site since a time to out as JSON lines, oldest first, and returns the time
// it reached. For other owners' sites it writes nothing.
func (t *Traffic) Log(ctx context.Context, owner account.OwnerID, site id.Site, since db.Time, out io.Writer) error {
	type chunk struct {
		at   db.Time
		id   string
		body string
	}
	last := chunk{at: since}
	for {
		rows, err := t.c.DB.Query(ctx, `
			SELECT l.at, l.id, l.body FROM access_log l JOIN open_sites s ON s.id = l.site_id
			WHERE l.site_id = $1 AND s.owner_id = $2 AND (l.at > $3 OR l.at = $3 AND l.id > $4)
			ORDER BY l.at, l.id LIMIT $5`, site, owner, last.at, last.id, chunksRead)
		list, err := db.Collect(rows, err, func(s db.Scanner) (c chunk, err error) { return c, s.Scan(&c.at, &c.id, &c.body) })
		if err != nil {
			return fmt.Errorf("read access log: %w", err)
		}
		for _, c := range list {
			b, err := base64.StdEncoding.DecodeString(c.body)
			if err != nil {
				return fmt.Errorf("read access log: %w", err)
			}
			in, err := gzip.NewReader(bytes.NewReader(b))
			if err != nil {
				return fmt.Errorf("read access log: %w", err)
			}
			if _, err := io.Copy(out, io.LimitReader(in, maxChunk)); err != nil {
				return fmt.Errorf("write access log: %w", err)
			}
			last = c
		}
		if len(list) < chunksRead {
			return nil
		}
	}
}

// forgetLogs deletes rows that are too old, exceed a site's size, or exceed the total size.
func (t *Traffic) forgetLogs(ctx context.Context) error {
	err := t.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM access_log WHERE at < $1`, t.c.Now().Add(-keepLog))
		return err
	})
	if err != nil {
		return err
	}
	rows, err := t.c.DB.Query(ctx, `SELECT site_id FROM access_log GROUP BY site_id HAVING SUM(size) > $1`, t.c.SiteLog)
	large, err := db.Collect(rows, err, func(s db.Scanner) (id string, err error) { return id, s.Scan(&id) })
	if err != nil {
		return err
	}
	for _, site := range large {
		if err := t.shorten(ctx, `WHERE site_id = $1`, []any{site}, t.c.SiteLog); err != nil {
			return err
		}
	}
	return t.shorten(ctx, ``, nil, t.c.AllLogs)
}

// shorten deletes the oldest of the selected rows until the rest fits into most bytes.
func (t *Traffic) shorten(ctx context.Context, where string, args []any, most int64) error {
	var sum int64
	if err := t.c.DB.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM access_log `+where, args...).Scan(&sum); err != nil {
		return err
	}
	for sum > most {
		rows, err := t.c.DB.Query(ctx, `SELECT at, size FROM access_log `+where+` ORDER BY at LIMIT 1000`, args...)
		type one struct {
			at   db.Time
			size int64
		}
		oldest, err := db.Collect(rows, err, func(s db.Scanner) (o one, err error) { return o, s.Scan(&o.at, &o.size) })
		if err != nil || len(oldest) == 0 {
			return err
		}
		var until db.Time
		for _, o := range oldest {
			if sum <= most && o.at != until {
				break
			}
			sum, until = sum-o.size, o.at
		}
		also := " WHERE at <= $1"
		if where != "" {
			also = where + " AND at <= $2"
		}
		if err := t.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM access_log `+also, append(args[:len(args):len(args)], until)...)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
