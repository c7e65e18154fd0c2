package traffic

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/account"
)

// Top is a name and its number of hits.
type Top struct {
	Name string
	Hits int64
}

const (
	keepTop  = 31 * day
	dayNames = 200 // per site, kind and day
)

// Top returns the most frequent names of a kind for the owner's site since the start of a time's day, and the sum of
// all others. Days are kept for 31 days.
func (t *Traffic) Top(
	ctx context.Context, owner account.OwnerID, site id.Site, kind visit.Kind, since db.Time, limit int,
) (top []Top, rest int64, err error) {
	rows, err := t.c.DB.Query(ctx, `
		SELECT p.name, CAST(SUM(p.hits) AS BIGINT) AS n FROM traffic_top p JOIN open_sites s ON s.id = p.site_id
		WHERE p.site_id = $1 AND s.owner_id = $2 AND p.kind = $3 AND p.day >= $4
		GROUP BY p.name ORDER BY n DESC, p.name`, site, owner, kind, floor(since, day))
	all, err := db.Collect(rows, err, func(s db.Scanner) (x Top, err error) { return x, s.Scan(&x.Name, &x.Hits) })
	if err != nil {
		return nil, 0, fmt.Errorf("read names of traffic: %w", err)
	}
	top = []Top{}
	for _, x := range all {
		if x.Name == "" || len(top) >= limit {
			rest += x.Hits
		} else {
			top = append(top, x)
		}
	}
	return top, rest, nil
}

// addNames adds a day's counts by name.
func addNames(ctx context.Context, tx *db.Tx, site id.Site, at db.Time, names map[visit.Name]int64) error {
	if len(names) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `SELECT kind, name FROM traffic_top WHERE site_id = $1 AND day = $2`, site, at)
	known, err := db.Collect(rows, err, func(s db.Scanner) (n visit.Name, err error) { return n, s.Scan(&n.Kind, &n.Name) })
	if err != nil {
		return err
	}
	have, of := map[visit.Name]bool{}, map[visit.Kind]int{}
	for _, n := range known {
		have[n] = true
		of[n.Kind]++
	}
	sum := map[visit.Name]int64{}
	order := slices.SortedFunc(maps.Keys(names), func(a, b visit.Name) int {
		if names[a] != names[b] { // the most frequent names get the places
			return int(names[b] - names[a])
		}
		return strings.Compare(string(a.Kind)+a.Name, string(b.Kind)+b.Name)
	})
	for _, n := range order {
		to := visit.Name{Kind: n.Kind, Name: clean(n.Name)}
		if !have[to] {
			if of[n.Kind] >= dayNames {
				to.Name = ""
			} else {
				have[to] = true
				of[n.Kind]++
			}
		}
		sum[to] += names[n]
	}
	// Sorted, so that nodes that update the same rows can't deadlock.
	keys := slices.SortedFunc(maps.Keys(sum), func(a, b visit.Name) int {
		return strings.Compare(string(a.Kind)+a.Name, string(b.Kind)+b.Name)
	})
	for some := range slices.Chunk(keys, 200) {
		var args db.Args
		var q strings.Builder
		q.WriteString(`INSERT INTO traffic_top (site_id, day, kind, name, hits) VALUES `)
		for i, n := range some {
			if i > 0 {
				q.WriteByte(',')
			}
			values := []string{
				args.Add(string(site)), args.Add(at), args.Add(string(n.Kind)), args.Add(n.Name), args.Add(sum[n]),
			}
			q.WriteString("(" + strings.Join(values, ",") + ")")
		}
		q.WriteString(` ON CONFLICT (site_id, day, kind, name) DO UPDATE SET hits = traffic_top.hits + excluded.hits`)
		if _, err := tx.Exec(ctx, q.String(), args...); err != nil {
			return err
		}
	}
	return nil
}

// clean makes a visitor's text valid for both databases.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}

func (t *Traffic) forgetNames(ctx context.Context) error {
	before := floor(t.c.Now().Add(-keepTop), day)
	return t.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM traffic_top WHERE day < $1`, before)
		return err
	})
}
