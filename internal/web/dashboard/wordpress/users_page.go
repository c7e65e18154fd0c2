package wordpress

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
	"slipway/internal/wordpress/wordpress"
)

func (d *Pages) wordpressUserRoutes() []shell.Route {
	change := func(path string, do func(context.Context, *shell.Request) (shell.Answer, error)) shell.Route {
		return shell.Post("/sites/{id}/wordpress/users"+path, shell.User, do, d.wordpressUsers).
			Takes(account.SitesWrite).Least(account.RoleManager)
	}
	return []shell.Route{
		shell.Get("/sites/{id}/wordpress/users", shell.User, d.wordpressUsers).Takes(account.SitesRead),
		shell.Get("/sites/{id}/wordpress/users/follow", shell.User, d.wordpressUsersLive).Takes(account.SitesRead),
		change("", d.changeWordPressUser),
		change("/create", d.createWordPressUser),
	}
}

// usersPerPage limits the page's size.
const usersPerPage = 100

type usersData struct {
	sites.SiteHead
	List  []wordpress.User
	Total int
	Roles []string
	Pages shell.Pages
	Error string // why WordPress doesn't respond
	Work  []wordpressWork
}

func (d *Pages) wordpressUsers(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "wordpress")
	if err != nil {
		return shell.Answer{}, err
	}
	data := usersData{SiteHead: head, Roles: slices.Clone(wordpress.Roles)}
	list, total, err := d.WordPress.Users(ctx, q.Caller.Owner, head.Site.ID)
	if f := fault.As(err); f != nil {
		data.Error = f.Message + ": " + f.Details
	} else if err != nil {
		return shell.Answer{}, err
	}
	for _, u := range list {
		for _, role := range u.Roles {
			if !slices.Contains(data.Roles, role) && len(data.Roles) < 30 {
				data.Roles = append(data.Roles, role)
			}
		}
	}
	page := shell.PageOf(q)
	data.Pages = shell.Turn(page, len(list), usersPerPage, func(n int) string {
		return shell.Link(head.Base()+"/wordpress/users", "page", strconv.Itoa(n))
	})
	from := min((page-1)*usersPerPage, len(list))
	data.List, data.Total = list[from:min(from+usersPerPage, len(list))], total
	if data.Work, err = d.wordpressWork(ctx, q, head.Site.ID); err != nil {
		return shell.Answer{}, err
	}
	data.Sub = "WordPress users"
	return shell.Page("site_wordpress_users", "WordPress users of "+head.Site.Name, data), nil
}

// Working reports whether an operation is running.
func (d usersData) Working() bool { return working(d.Work) }

// wordpressUsersLive updates the operations until none is running, whereupon the page reloads.
func (d *Pages) wordpressUsersLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "wordpress")
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(time.Second, func(ctx context.Context) ([]byte, bool, error) {
		html, work, err := d.workPart(ctx, q, head, "site_wordpress_users")
		return html, !working(work), err
	}), nil
}

func (d *Pages) changeWordPressUser(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if _, err := d.Sites.Get(ctx, q.Caller.Owner, shell.PathID[site.ID](q, "id")); err != nil {
		return shell.Answer{}, err
	}
	id, err := strconv.ParseInt(q.Value("user"), 10, 64)
	if err != nil {
		return shell.Answer{}, &fault.Error{Kind: fault.Invalid, Message: "No user is selected", Details: "select one, then choose what to do"}
	}
	u := wordpress.UserChange{Action: q.Value("action"), ID: id}
	toast := "Sending a password reset"
	switch u.Action {
	case wordpress.ChangeRole:
		u.Role, toast = q.Value("role"), "Changing the role"
	case wordpress.ResetPassword:
	default:
		return shell.Answer{}, &fault.Error{Kind: fault.Invalid, Message: "Invalid action", Received: shell.Short(40, u.Action)}
	}
	return d.actOnUser(ctx, q, u, toast)
}

func (d *Pages) createWordPressUser(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.actOnUser(ctx, q, wordpress.UserChange{
		Action: wordpress.CreateUser, Login: strings.TrimSpace(q.Value("login")), Email: strings.TrimSpace(q.Value("email")),
		Role: q.Value("role"),
	}, "Creating the user")
}

func (d *Pages) actOnUser(ctx context.Context, q *shell.Request, u wordpress.UserChange, toast string) (shell.Answer, error) {
	id := shell.PathID[site.ID](q, "id")
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.WordPress.ChangeUserTx(ctx, tx, q.Caller.Owner, id, u)
		return audit.Event{Action: "wordpress.user", Subject: string(id), Detail: u.Words()}, err
	})
	return shell.GoTo("/sites/"+string(id)+"/wordpress/users", toast), err
}
