package operator

import (
	"context"
	"strconv"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/node"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// Routes lists the routes of the operator's pages.
func (d *Pages) Routes() []shell.Route {
	return append(d.operatorGitRoutes(),
		shell.Get("/operator", shell.Operator, d.overviewPage),
		shell.Get("/operator/users", shell.Operator, d.usersPage),
		shell.Post("/operator/users/invite", shell.Operator, d.invite, d.usersPage),
		shell.Get("/operator/users/{user}", shell.Operator, d.userPage),
		shell.Post("/operator/users/{user}/link", shell.Operator, d.makeLink, d.userPage),
		shell.Post("/operator/users/{user}/uninvite", shell.Operator, d.uninvite, d.userPage),
		shell.Post("/operator/users/{user}/sign-out", shell.Operator, d.signOutUser, d.userPage),
		shell.Post("/operator/users/{user}/second-factor-off", shell.Operator, d.dropFactor, d.userPage),
		shell.Post("/operator/users/{user}/passkeys-off", shell.Operator, d.dropPasskeys, d.userPage),
		shell.Post("/operator/users/{user}/role", shell.Operator, d.changeRole, d.userPage),
		shell.Post("/operator/users/{user}/suspend", shell.Operator, d.suspendUser, d.userPage),
		shell.Post("/operator/users/{user}/resume", shell.Operator, d.resumeUser, d.userPage),
		shell.Post("/operator/users/{user}/delete", shell.Operator, d.deleteUser, d.userPage),
		shell.Get("/operator/sites", shell.Operator, d.allSitesPage),
		shell.Get("/live/operator", shell.Operator, d.overviewLive))
}

type overviewData struct {
	Users, Sites int
	Nodes        []node.Node // if there are or were several
	Queues       []Queue
	Disk         *Disk
	Doctor       bool // whether the doctor is available
	Findings     []Finding
	Found        db.Time // time of the checks; 0: not yet
	Bad          int     // number of failed checks
}

func (d *Pages) overviewPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.overview(ctx, d.doctor.get)
	return shell.Page("operator_overview", "Operator", data), err
}

// overviewLive updates the numbers. It doesn't run the doctor's checks again, which are active tests, but shows newer
// results if there are any.
func (d *Pages) overviewLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return shell.LivePart(5*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.overview(ctx, func(context.Context) ([]Finding, time.Time, error) { return d.doctor.last() })
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "operator_overview", "numbers", data)
		return html, false, err
	}), nil
}

func (d *Pages) overview(
	ctx context.Context,
	findings func(context.Context) ([]Finding, time.Time, error),
) (data overviewData, err error) {
	users, err := d.Accounts.Users(ctx)
	if err != nil {
		return data, err
	}
	data.Users = len(users)
	owned, err := d.Sites.Owned(ctx)
	if err != nil {
		return data, err
	}
	for _, n := range owned {
		data.Sites += n
	}
	if d.Installation == nil {
		return data, nil
	}
	if data.Nodes, err = d.Installation.Nodes(ctx); err != nil {
		return data, err
	}
	if len(data.Nodes) < 2 {
		data.Nodes = nil
	}
	if data.Queues, err = d.Installation.Queues(ctx); err != nil {
		return data, err
	}
	disk, at, err := d.disk.get(ctx)
	if err != nil {
		return data, err
	}
	if !at.IsZero() {
		data.Disk = &disk
	}
	data.Doctor = true
	if data.Findings, at, err = findings(ctx); err != nil {
		return data, err
	}
	if !at.IsZero() {
		data.Found = db.At(at)
	}
	for _, f := range data.Findings {
		if !f.OK {
			data.Bad++
		}
	}
	return data, nil
}

type userRow struct {
	account.User
	Sites int
}

type usersData struct {
	Users []userRow
	Pages shell.Pages
	Total int
	Open  bool // whether anyone can sign up
}

const usersPerPage = 100

func (d *Pages) usersPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	all, err := d.Accounts.Users(ctx)
	if err != nil {
		return shell.Answer{}, err
	}
	p := shell.PageOf(q)
	data := usersData{
		Total: len(all), Open: d.SignUp,
		Pages: shell.Turn(p, len(all), usersPerPage, func(p int) string { return shell.Link("/operator/users", "page", strconv.Itoa(p)) }),
	}
	owned, err := d.Sites.Owned(ctx)
	if err != nil {
		return shell.Answer{}, err
	}
	from := min((p-1)*usersPerPage, len(all))
	for _, u := range all[from:min(from+usersPerPage, len(all))] {
		data.Users = append(data.Users, userRow{u, owned[u.Owner]})
	}
	return shell.Page("operator_users", "Users", data), nil
}

type siteRow struct {
	site.Site
	URL   string
	Email string
}

type allSitesData struct {
	Sites []siteRow
	Total int
	Pages shell.Pages
}

const sitesPerPage = 50

// allSitesPage lists all owners' sites, newest first.
func (d *Pages) allSitesPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	users, err := d.Accounts.Users(ctx)
	if err != nil {
		return shell.Answer{}, err
	}
	emails := map[account.OwnerID]string{}
	for _, u := range users {
		emails[u.Owner] = u.Email
	}
	owned, err := d.Sites.Owned(ctx)
	if err != nil {
		return shell.Answer{}, err
	}
	data := allSitesData{}
	for _, n := range owned {
		data.Total += n
	}
	p := shell.PageOf(q)
	list, err := d.Sites.All(ctx, p, sitesPerPage)
	if err != nil {
		return shell.Answer{}, err
	}
	for _, s := range list {
		data.Sites = append(data.Sites, siteRow{s, d.Sites.URL(s.Slug), emails[s.Owner]})
	}
	data.Pages = shell.Turn(p, data.Total, sitesPerPage, func(p int) string { return shell.Link("/operator/sites", "page", strconv.Itoa(p)) })
	return shell.Page("operator_sites", "All sites", data), nil
}
