package dashboard

import (
	"context"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// operatorRoutes is every route of what the operator sees.
func (d *Dashboard) operatorRoutes() []route {
	return append(d.operatorGitRoutes(),
		get("/operator", operator, d.overviewPage),
		get("/operator/users", operator, d.usersPage),
		post("/operator/users/invite", operator, d.invite, d.usersPage),
		get("/operator/users/{user}", operator, d.userPage),
		post("/operator/users/{user}/link", operator, d.makeLink, d.userPage),
		post("/operator/users/{user}/uninvite", operator, d.uninvite, d.userPage),
		post("/operator/users/{user}/sign-out", operator, d.signOutUser, d.userPage),
		post("/operator/users/{user}/second-factor-off", operator, d.dropFactor, d.userPage),
		post("/operator/users/{user}/role", operator, d.changeRole, d.userPage),
		post("/operator/users/{user}/suspend", operator, d.suspendUser, d.userPage),
		post("/operator/users/{user}/resume", operator, d.resumeUser, d.userPage),
		post("/operator/users/{user}/delete", operator, d.deleteUser, d.userPage),
		get("/operator/sites", operator, d.allSitesPage),
		get("/operator/audit", operator, d.allAuditPage),
		get("/operator/audit/download", operator, d.allAuditDownload),
		get("/live/operator", operator, d.overviewLive))
}

type overviewData struct {
	Users, Sites int
	Queues       []Queue
	Disk         *Disk
	Doctor       bool // there is one to be asked
	Findings     []Finding
	Found        db.Time // when; 0: not yet
	Bad          int     // findings that are not well
}

func (d *Dashboard) overviewPage(ctx context.Context, q *request) (answer, error) {
	data, err := d.overview(ctx, d.doctor.get)
	return page("operator_overview", "Operator", data), err
}

// overviewLive keeps the numbers fresh. The doctor, who tries things out, is not asked
// again: only what was found since is shown.
func (d *Dashboard) overviewLive(ctx context.Context, q *request) (answer, error) {
	return answer{live: live{render: func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.overview(ctx, func(context.Context) ([]Finding, time.Time, error) { return d.doctor.last() })
		if err != nil {
			return nil, false, err
		}
		html, err := d.part(ctx, q, "operator_overview", "numbers", data)
		return html, false, err
	}}}, nil
}

func (d *Dashboard) overview(
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
	Pages pages
	Total int
}

const usersPerPage = 100

func (d *Dashboard) usersPage(ctx context.Context, q *request) (answer, error) {
	all, err := d.Accounts.Users(ctx)
	if err != nil {
		return answer{}, err
	}
	p := pageOf(q)
	data := usersData{
		Total: len(all),
		Pages: turn(p, len(all), usersPerPage, func(p int) string { return link("/operator/users", "page", strconv.Itoa(p)) }),
	}
	owned, err := d.Sites.Owned(ctx)
	if err != nil {
		return answer{}, err
	}
	from := min((p-1)*usersPerPage, len(all))
	for _, u := range all[from:min(from+usersPerPage, len(all))] {
		data.Users = append(data.Users, userRow{u, owned[u.Owner]})
	}
	return page("operator_users", "Users", data), nil
}

type siteRow struct {
	site.Site
	URL   string
	Email string
}

type allSitesData struct {
	Sites []siteRow
	Total int
	Pages pages
}

const sitesPerPage = 50

// allSitesPage lists every site, the newest first.
func (d *Dashboard) allSitesPage(ctx context.Context, q *request) (answer, error) {
	users, err := d.Accounts.Users(ctx)
	if err != nil {
		return answer{}, err
	}
	emails := map[account.OwnerID]string{}
	for _, u := range users {
		emails[u.Owner] = u.Email
	}
	owned, err := d.Sites.Owned(ctx)
	if err != nil {
		return answer{}, err
	}
	data := allSitesData{}
	for _, n := range owned {
		data.Total += n
	}
	p := pageOf(q)
	list, err := d.Sites.All(ctx, p, sitesPerPage)
	if err != nil {
		return answer{}, err
	}
	for _, s := range list {
		data.Sites = append(data.Sites, siteRow{s, d.Sites.URL(s.Slug), emails[s.Owner]})
	}
	data.Pages = turn(p, data.Total, sitesPerPage, func(p int) string { return link("/operator/sites", "page", strconv.Itoa(p)) })
	return page("operator_sites", "All sites", data), nil
}

// pageOf is the page asked for; what is no number is the first.
func pageOf(q *request) int {
	n, err := strconv.Atoi(strings.TrimSpace(q.query("page")))
	if err != nil {
		return 1
	}
	return max(1, min(n, 1_000_000))
}
