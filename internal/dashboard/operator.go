package dashboard

import (
	"context"
	"strconv"
	"strings"
	"time"

	"slipway/internal/account"
	"slipway/internal/db"
	"slipway/internal/site"
)

// operatorRoutes is every route of what the operator sees.
func (d *Dashboard) operatorRoutes() []route {
	return []route{
		get("/operator", operator, d.overviewPage),
		get("/operator/users", operator, d.usersPage),
		post("/operator/users/invite", operator, d.invite, d.usersPage),
		get("/operator/users/{user}", operator, d.userPage),
		post("/operator/users/{user}/link", operator, d.makeLink, d.userPage),
		post("/operator/users/{user}/uninvite", operator, d.uninvite, d.userPage),
		post("/operator/users/{user}/sign-out", operator, d.signOutUser, d.userPage),
		post("/operator/users/{user}/second-factor-off", operator, d.dropFactor, d.userPage),
		get("/operator/sites", operator, d.allSitesPage),
		get("/operator/audit", operator, d.allAuditPage),
		get("/live/operator", operator, d.overviewLive),
	}
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

func (d *Dashboard) overview(ctx context.Context, findings func(context.Context) ([]Finding, time.Time, error)) (data overviewData, err error) {
	users, err := d.Accounts.Users(ctx)
	if err != nil {
		return data, err
	}
	data.Users = len(users)
	for _, u := range users {
		_, n, err := d.Sites.List(ctx, u.ID, oneSite)
		if err != nil {
			return data, err
		}
		data.Sites += n
	}
	if d.Queues != nil {
		if data.Queues, err = d.Queues(ctx); err != nil {
			return data, err
		}
	}
	if d.Disk != nil {
		disk, at, err := d.disk.get(ctx)
		if err != nil {
			return data, err
		}
		if !at.IsZero() {
			data.Disk = &disk
		}
	}
	if data.Doctor = d.Doctor != nil; data.Doctor {
		var at time.Time
		if data.Findings, at, err = findings(ctx); err != nil {
			return data, err
		}
		if !at.IsZero() {
			data.Found = db.At(at)
		}
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
	data := usersData{Total: len(all), Pages: turn(p, len(all), usersPerPage, func(p int) string { return link("/operator/users", "page", strconv.Itoa(p)) })}
	from := min((p-1)*usersPerPage, len(all))
	for _, u := range all[from:min(from+usersPerPage, len(all))] {
		_, n, err := d.Sites.List(ctx, u.ID, oneSite)
		if err != nil {
			return answer{}, err
		}
		data.Users = append(data.Users, userRow{u, n})
	}
	return page("operator_users", "Users", data), nil
}

type userData struct {
	Who      account.User
	Sites    int
	Keys     int
	Sessions int
	Factor   account.Factor
	Link     string // a one-time link, shown once
	Invited  bool   // the link is an invitation
}

// whose returns the user that the page is about.
func (d *Dashboard) whose(ctx context.Context, q *request) (account.User, error) {
	return d.Accounts.User(ctx, account.ID(q.PathValue("user")))
}

func (d *Dashboard) userPage(ctx context.Context, q *request) (answer, error) {
	u, err := d.whose(ctx, q)
	if err != nil {
		return answer{}, err
	}
	data, err := d.userData(ctx, u)
	return page("operator_user", u.Email, data), err
}

func (d *Dashboard) userData(ctx context.Context, u account.User) (data userData, err error) {
	data.Who = u
	if _, data.Sites, err = d.Sites.List(ctx, u.ID, oneSite); err != nil {
		return data, err
	}
	keys, err := d.Accounts.ListKeys(ctx, u.ID)
	if err != nil {
		return data, err
	}
	sessions, err := d.Accounts.Sessions(ctx, u.ID)
	if err != nil {
		return data, err
	}
	data.Keys, data.Sessions = len(keys), len(sessions)
	data.Factor, err = d.Accounts.SecondFactor(ctx, u.ID)
	return data, err
}

// showLink shows a one-time link, which is kept nowhere.
func (d *Dashboard) showLink(ctx context.Context, u account.User, token string) (answer, error) {
	data, err := d.userData(ctx, u)
	data.Link, data.Invited = d.BaseURL+"/setup/"+token, !u.Password
	return page("operator_user", u.Email, data), err
}

func (d *Dashboard) invite(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	var u account.User
	var token string
	err := d.actOn(ctx, q, func(tx *db.Tx) (deed account.Deed, err error) {
		u, token, err = d.Accounts.InviteTx(ctx, tx, q.value("email"), q.value("role") == "operator")
		return account.Deed{Action: "user.invited", Subject: string(u.ID), About: u.ID, Detail: u.Email}, err
	})
	if err != nil {
		return answer{}, err
	}
	return d.showLink(ctx, u, token)
}

func (d *Dashboard) makeLink(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	u, err := d.whose(ctx, q)
	if err != nil {
		return answer{}, err
	}
	var token string
	err = d.actOn(ctx, q, func(tx *db.Tx) (deed account.Deed, err error) {
		token, err = d.Accounts.NewSetupLinkTx(ctx, tx, u.ID, account.LinkLife)
		return account.Deed{Action: "password.link", Subject: string(u.ID), About: u.ID, Detail: u.Email}, err
	})
	if err != nil {
		return answer{}, err
	}
	return d.showLink(ctx, u, token)
}

func (d *Dashboard) uninvite(ctx context.Context, q *request) (answer, error) {
	u, err := d.whose(ctx, q)
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.Deed, error) {
		return account.Deed{Action: "user.uninvited", Subject: string(u.ID), Detail: u.Email}, d.Accounts.UninviteTx(ctx, tx, u.ID)
	})
	return goTo("/operator/users", "The invitation is taken back"), err
}

func (d *Dashboard) signOutUser(ctx context.Context, q *request) (answer, error) {
	u, err := d.whose(ctx, q)
	if err != nil {
		return answer{}, err
	}
	var n int64
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.Deed, error) {
		n, err = d.Accounts.EndSessionsTx(ctx, tx, u.ID, q.session.ID)
		return account.Deed{Action: "sessions.ended", Subject: string(u.ID), About: u.ID, Detail: plural(int(n), "session") + " of " + u.Email}, err
	})
	return goTo("/operator/users/"+string(u.ID), "Signed out "+plural(int(n), "session")), err
}

func (d *Dashboard) dropFactor(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	u, err := d.whose(ctx, q)
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.Deed, error) {
		return account.Deed{Action: "second_factor.disabled", Subject: string(u.ID), About: u.ID, Detail: "of " + u.Email}, d.Accounts.DropTOTPTx(ctx, tx, u.ID)
	})
	return goTo("/operator/users/"+string(u.ID), "The second factor is off"), err
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

// allSitesPage lists every site, user by user: the room answers for one owner at a time.
func (d *Dashboard) allSitesPage(ctx context.Context, q *request) (answer, error) {
	users, err := d.Accounts.Users(ctx)
	if err != nil {
		return answer{}, err
	}
	p := pageOf(q)
	data := allSitesData{}
	skip := (p - 1) * sitesPerPage
	for _, u := range users {
		_, n, err := d.Sites.List(ctx, u.ID, oneSite)
		if err != nil {
			return answer{}, err
		}
		data.Total += n
		if skip >= n {
			skip -= n
			continue
		}
		for at := skip - skip%sitesPerPage; at < n && len(data.Sites) < sitesPerPage; at += sitesPerPage {
			list, _, err := d.Sites.List(ctx, u.ID, site.Filter{Page: at/sitesPerPage + 1, Limit: sitesPerPage})
			if err != nil {
				return answer{}, err
			}
			for _, s := range list[min(max(0, skip-at), len(list)):] {
				if len(data.Sites) < sitesPerPage {
					data.Sites = append(data.Sites, siteRow{s, d.Sites.URL(s.Slug), u.Email})
				}
			}
		}
		skip = 0
	}
	data.Pages = turn(p, data.Total, sitesPerPage, func(p int) string { return link("/operator/sites", "page", strconv.Itoa(p)) })
	return page("operator_sites", "All sites", data), nil
}

func (d *Dashboard) allAuditPage(ctx context.Context, q *request) (answer, error) {
	return d.audit(ctx, q, "", "/operator/audit", "operator_audit")
}

// pageOf is the page asked for; what is no number is the first.
func pageOf(q *request) int {
	n, err := strconv.Atoi(strings.TrimSpace(q.query("page")))
	if err != nil {
		return 1
	}
	return max(1, min(n, 1_000_000))
}
