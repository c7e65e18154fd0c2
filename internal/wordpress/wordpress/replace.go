package wordpress

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// Replace says what text to replace in a site's database.
type Replace struct {
	From, To string
	Dry      bool // only count
}

// maxReplace bounds both texts, in bytes.
const maxReplace = 2000

// ReplaceTx begins to replace text in all tables of the owner's WordPress, serialized values
// included.
func (w *WordPress) ReplaceTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, p Replace) (operation.Operation, error) {
	s, err := w.c.Sites.LockTx(ctx, tx, owner, id)
	if err == nil {
		err = w.live(s)
	}
	if err == nil {
		_, err = w.get(ctx, tx, id)
	}
	if err != nil {
		return operation.Operation{}, err
	}
	for name, text := range map[string]string{"from": p.From, "to": p.To} {
		if len(text) > maxReplace || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return operation.Operation{}, fault.New(fault.Invalid, "invalid_search_replace", "Invalid "+name,
				fmt.Sprintf("%s is text of at most %d bytes", name, maxReplace))
		}
	}
	if strings.TrimSpace(p.From) == "" || p.From == p.To {
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_search_replace", "Invalid from",
			"from must not be empty, and differ from to").Got(p.From)
	}
	return w.beginTx(ctx, tx, owner, id, Work{What: kindReplace, Replace: &p})
}

// replaceResult holds what a replacement found.
type replaceResult struct {
	Rows         int64            `json:"rows"`
	Replacements int64            `json:"replacements"`
	Tables       map[string]int64 `json:"tables"` // rows of each
	Skipped      []string         `json:"skipped"`
}

// replace is one call of a replacement's job.
func (r *run) replace(ctx context.Context) error {
	p := r.x.Replace
	if r.step.At == atBack {
		return r.goBack(ctx, "")
	}
	if r.step.At == atBackup && !p.Dry {
		ready, err := r.backUp(ctx, r.x.Site, &r.step.Backup, "Before a search and replace")
		if err != nil {
			return err
		}
		if !ready {
			return job.Later(waitFor)
		}
	}
	if r.step.At == atBackup {
		at := atChange
		if p.Dry {
			at = atFill // nothing changes, so nothing goes back
		}
		if err := r.to(ctx, at, 0.2, "Replacing"); err != nil {
			return err
		}
	}
	s, err := r.site(ctx)
	if err != nil {
		return err
	}
	found, err := r.replaceAll(ctx, s, pairs{List: [][2]string{{p.From, p.To}}}, p.Dry, 0.2)
	if err != nil {
		return err
	}
	out := r.result()
	out["dryRun"], out["rows"], out["replacements"], out["tables"], out["skippedTables"] = p.Dry, found.Rows, found.Replacements, found.Tables,
		found.Skipped
	if p.Dry {
		return r.end(ctx, fmt.Sprintf("%d replacements in %d rows would be made", found.Replacements, found.Rows), "", out)
	}
	return r.end(ctx, fmt.Sprintf("%d replacements in %d rows", found.Replacements, found.Rows), "", out)
}

// pairs are texts with what takes their place.
type pairs struct {
	List      [][2]string
	Addresses bool     // they are made of addresses, which end where a host does
	Tables    []string // in which alone they are replaced. Optional.
}

// replaceAll replaces pairs of texts, a few seconds at a time. What a crash cuts off goes on
// where it was: WordPress notes the place with each change.
func (r *run) replaceAll(ctx context.Context, s site.Site, what pairs, dry bool, from float64) (replaceResult, error) {
	var found replaceResult
	for range maxRounds {
		var out struct {
			Done     bool
			Place    json.RawMessage
			Progress float64
		}
		err := r.task(ctx, s, s.LiveDeployment, "replace", map[string]any{
			"run":       r.x.Operation,
			"pairs":     what.List,
			"addresses": what.Addresses,
			"tables":    what.Tables,
			"dry":       dry,
			"place":     r.step.Place,
		}, &out)
		if err != nil {
			return found, err
		}
		if out.Done {
			if err := json.Unmarshal(out.Place, &found); err != nil {
				return found, fault.New(fault.Conflict, "wordpress_failed", "WordPress did not respond",
					"a plugin may have ended the request")
			}
			if !dry {
				r.purgeAll(ctx, s.ID)
			}
			return found, nil
		}
		if len(out.Place) > maxPlace {
			break
		}
		r.step.Place = out.Place
		if err := r.to(ctx, r.step.At, from+(0.95-from)*out.Progress, "Replacing"); err != nil {
			return found, err
		}
	}
	return found, fault.New(fault.Conflict, "wordpress_failed", "The replacement can't be completed",
		"a plugin may have changed its answers")
}

// What a replacement may take: rounds of some seconds, and the place between two of them.
const (
	maxRounds = 2000
	maxPlace  = 256 << 10
)

// addressPairs returns the forms in which addresses of a site stand in its database, with what takes the place of each: with both
// protocols and without one, as they are, in JSON, in JSON within JSON, and encoded for a query once and twice. The longest come first: an
// address may lie below another one. Files below the path of an address are also named without the host.
func addressPairs(from []string, to string) (list [][2]string) {
	seen := map[string]bool{}
	add := func(from, to string) {
		for _, form := range addressForms {
			f, t := form.Replace(from), form.Replace(to)
			if f != t && !seen[f] {
				seen[f] = true
				list = append(list, [2]string{f, t})
			}
		}
	}
	_, host, _ := strings.Cut(to, ":")
	for _, f := range from {
		_, old, ok := strings.Cut(strings.TrimRight(f, "/"), "://")
		if !ok || old == "" {
			continue
		}
		add("https://"+old, to)
		add("http://"+old, to)
		add("//"+old, host)
		if _, path, ok := strings.Cut(old, "/"); ok {
			for _, before := range []string{`"`, "'", "("} {
				add(before+"/"+path+"/wp-content", before+"/wp-content")
			}
		}
	}
	return longestFirst(list)
}

// longestFirst sorts pairs, because an address may lie below another one.
func longestFirst(list [][2]string) [][2]string {
	slices.SortStableFunc(list, func(a, b [2]string) int { return len(b[0]) - len(a[0]) })
	return list
}

// addressForms are the ways in which an address is written.
var addressForms = []*strings.Replacer{
	strings.NewReplacer(),
	strings.NewReplacer("/", `\/`),
	strings.NewReplacer("/", `\\/`),
	strings.NewReplacer("/", `\\\/`),
	strings.NewReplacer("/", `\u002F`),
	strings.NewReplacer(":", "%3A", "/", "%2F"),
	strings.NewReplacer(":", "%253A", "/", "%252F"),
}
