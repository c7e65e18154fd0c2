package configure

import (
	"context"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

// hookForm is the data of a deploy hook's form, without its secret.
type hookForm struct {
	ID                            string // empty: a new hook
	Name, Branch, Title           string
	Addresses, ExpiresOn          string
	PerMinute, PerDay             string
	AnyBranch, ClearCache, Signed bool
}

const dayFormat = "2006-01-02"

func formOf(h site.Hook) hookForm {
	f := hookForm{
		ID:         h.ID.Reveal(),
		Name:       h.Name,
		Branch:     h.Branch,
		Title:      h.Title,
		AnyBranch:  h.AnyBranch,
		ClearCache: h.ClearCache,
		Signed:     h.Rules.Secret != "",
		ExpiresOn:  lastDay(h.Rules.ExpiresAt),
	}
	var list []string
	for _, p := range h.Rules.Addresses {
		list = append(list, p.String())
	}
	f.Addresses = strings.Join(list, "\n")
	if h.Rules.PerMinute > 0 {
		f.PerMinute = strconv.Itoa(h.Rules.PerMinute)
	}
	if h.Rules.PerDay > 0 {
		f.PerDay = strconv.Itoa(h.Rules.PerDay)
	}
	return f
}

// lastDay returns the last day (UTC) on which a hook works, or "".
func lastDay(expires db.Time) string {
	if expires == 0 {
		return ""
	}
	return (expires - 1).Time().UTC().Format(dayFormat)
}

// readHook reads the form of a deploy hook. was is the stored hook, whose expiry is more precise than the form's.
func readHook(q *shell.Request, was site.Hook) (n site.NewHook, err error) {
	n = site.NewHook{
		Name:       q.Value("name"),
		Branch:     strings.TrimSpace(q.Value("branch")),
		AnyBranch:  q.Checked("any_branch"),
		Title:      strings.TrimSpace(q.Value("title")),
		ClearCache: q.Checked("clear_cache"),
	}
	n.Rules.Addresses = []netip.Prefix{}
	for _, s := range strings.FieldsFunc(q.Value("addresses"), func(r rune) bool { return r == ',' || r <= ' ' }) {
		p, err := account.ParseNet(s)
		if err != nil {
			return n, shell.At("addresses", err)
		}
		n.Rules.Addresses = append(n.Rules.Addresses, p)
	}
	if text := q.Value("expires_on"); text != "" && text == lastDay(was.Rules.ExpiresAt) {
		n.Rules.ExpiresAt = was.Rules.ExpiresAt
	} else if text != "" {
		t, err := time.Parse(dayFormat, text)
		t = t.Add(24 * time.Hour)
		if err != nil || !t.After(time.Now()) {
			return n, shell.At("expires_on", fault.New(fault.Invalid, "invalid_expires_at", "Invalid expiry",
				"choose a date that is not in the past").Got(shell.Short(20, text)))
		}
		n.Rules.ExpiresAt = db.At(t)
	}
	for _, x := range []struct {
		name string
		to   *int
	}{{"per_minute", &n.Rules.PerMinute}, {"per_day", &n.Rules.PerDay}} {
		text := strings.TrimSpace(q.Value(x.name))
		if text == "" {
			continue
		}
		if *x.to, err = strconv.Atoi(text); err != nil {
			return n, shell.At(x.name, fault.New(fault.Invalid, "invalid_"+x.name, "Invalid number of calls",
				"a whole number, or empty for the default").Got(shell.Short(20, text)))
		}
	}
	switch {
	case q.Value("secret") != "":
		n.Rules.Secret = q.Value("secret")
	case !q.Checked("remove_secret"):
		n.Rules.Secret = was.Rules.Secret
	}
	return n, nil
}

func atHook(err error) error {
	return shell.AtCode(err, map[string]string{
		"invalid_name":       "name",
		"invalid_branch":     "branch",
		"invalid_title":      "title",
		"invalid_secret":     "secret",
		"invalid_addresses":  "addresses",
		"invalid_per_minute": "per_minute",
		"invalid_per_day":    "per_day",
	})
}

// hookOf returns the hook selected in the form, if it belongs to the site.
func (d *Pages) hookOf(ctx context.Context, q *shell.Request, id site.ID) (h site.Hook, err error) {
	h, err = d.Sites.OwnHook(ctx, d.DB, q.Caller.Owner, site.HookID(q.Value("hook")))
	if err == nil && h.Site != id {
		err = fault.Missing("deploy hook")
	}
	return h, err
}

type editHookData struct {
	sites.SiteHead
	Form hookForm
}

// editHookPage shows a hook's form. The ID is secret, so it comes from a form.
func (d *Pages) editHookPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "hooks")
	if err != nil {
		return shell.Answer{}, err
	}
	head.Sub = "Edit deploy hook"
	h, err := d.hookOf(ctx, q, head.Site.ID)
	return shell.Page("site_hook", "Edit deploy hook", editHookData{head, formOf(h)}), err
}

func (d *Pages) saveHook(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "hooks")
	if err != nil {
		return shell.Answer{}, err
	}
	was, err := d.hookOf(ctx, q, head.Site.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	n, err := readHook(q, was)
	if err != nil {
		return shell.Answer{}, err
	}
	a, err := d.changeHook(ctx, q, "hook.updated", "Deploy hook saved", func(tx *db.Tx, id site.HookID) (site.Hook, error) {
		return d.Sites.UpdateHookTx(ctx, tx, q.Caller.Owner, id, site.PatchHook{
			Name:      &n.Name,
			Branch:    &n.Branch,
			AnyBranch: &n.AnyBranch,
			Title:     &n.Title,
			Clear:     &n.ClearCache,
			Secret:    &n.Rules.Secret,
			Addresses: n.Rules.Addresses,
			ExpiresAt: &n.Rules.ExpiresAt,
			PerMinute: &n.Rules.PerMinute,
			PerDay:    &n.Rules.PerDay,
		})
	})
	return a, atHook(err)
}
