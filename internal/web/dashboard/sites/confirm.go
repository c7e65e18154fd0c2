package sites

import (
	"context"
	"strings"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// Confirmed requires the typed name of the site whose content an action destroys. undone says what wasn't done
// otherwise.
func Confirmed(q *shell.Request, s site.Site, undone string) error {
	if strings.TrimSpace(q.Value("confirm")) == s.Name {
		return nil
	}
	return fault.New(fault.Invalid, "", "The name doesn't match", undone+": type "+s.Name+" to confirm")
}

// ConfirmedHere is [Confirmed] for the page's site.
func (d *Pages) ConfirmedHere(ctx context.Context, q *shell.Request, undone string) error {
	s, err := d.Sites.Get(ctx, q.Caller.Owner, shell.PathID[site.ID](q, "id"))
	if err != nil {
		return err
	}
	return Confirmed(q, s, undone)
}
