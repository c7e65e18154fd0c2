package wordpress

import (
	"context"
	"fmt"
	"net/mail"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// UserChange says what is done to a user of a WordPress.
type UserChange struct {
	Action string // CreateUser, ChangeRole or ResetPassword
	ID     int64  // but of a new one
	Login  string // of a new one
	Email  string // of a new one
	Role   string // of a new one, and where it changes
}

// What is done to users.
const (
	CreateUser    = "create"
	ChangeRole    = "role"
	ResetPassword = "reset"
)

// Words describe the change for the audit log.
func (u UserChange) Words() string {
	switch u.Action {
	case CreateUser:
		return "created " + u.Login + " as " + u.Role
	case ChangeRole:
		return fmt.Sprintf("role of user %d: %s", u.ID, u.Role)
	}
	return fmt.Sprintf("password reset of user %d", u.ID)
}

// Roles that every WordPress has, those with the most rights first. Plugins add others.
var Roles = []string{"administrator", "editor", "author", "contributor", "subscriber"}

var roleForm = lazyregexp.New(`^[A-Za-z0-9_-]{1,60}$`)

// maxUserID is the largest id that every reader of JSON has exactly.
const maxUserID = 1 << 53

// ChangeUserTx begins to change a user of the owner's WordPress, or to create one.
func (w *WordPress) ChangeUserTx(
	ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, u UserChange,
) (operation.Operation, error) {
	invalid := func(what, details, received string) (operation.Operation, error) {
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_wordpress_user", "Invalid "+what,
			details).Got(text.Clip(received, 100))
	}
	if err := w.liveTx(ctx, tx, owner, id); err != nil {
		return operation.Operation{}, err
	}
	if u.Action == CreateUser {
		if !userForm.MatchString(u.Login) {
			return invalid("username", "a username has 3 to 60 letters, digits, dots, @, - and _", u.Login)
		}
		if a, err := mail.ParseAddress(u.Email); err != nil || a.Address != u.Email || len(u.Email) > 100 {
			return invalid("email", "email must be an email address of at most 100 characters", u.Email)
		}
	} else if u.ID < 1 || u.ID > maxUserID {
		return operation.Operation{}, fault.Missing("WordPress user")
	}
	if u.Action != ResetPassword && !roleForm.MatchString(u.Role) {
		return invalid("role", "role must be one of this WordPress, such as "+strings.Join(Roles, ", "), u.Role)
	}
	return w.beginTx(ctx, tx, owner, id, Work{What: kindUser, User: &u})
}

// userTime bounds a change of a user; it may send a mail.
const userTime = 2 * time.Minute

// changeUser is one call of the job of a change of a user.
func (r *run) changeUser(ctx context.Context) error {
	u := r.x.User
	s, err := r.site(ctx)
	if err != nil {
		return err
	}
	doing := map[string]string{CreateUser: "Creating " + u.Login, ChangeRole: "Changing the role", ResetPassword: "Sending the email"}
	if err := r.to(ctx, atApply, 0.3, doing[u.Action]); err != nil {
		return err
	}
	in := map[string]any{"action": u.Action, "id": u.ID, "login": u.Login, "email": u.Email}
	if u.Role != "" {
		in["role"] = u.Role
	}
	within, done := context.WithTimeout(ctx, userTime)
	defer done()
	var out struct {
		Login  string
		Mailed bool
	}
	if err := r.task(within, s, s.LiveDeployment, "user", in, &out); err != nil {
		return err
	}
	r.purgeAll(ctx, s.ID)
	name := text.Clip(out.Login, 60)
	result := r.result()
	result["login"] = name
	switch {
	case u.Action == ChangeRole:
		return r.end(ctx, name+" now has the role "+u.Role, "", result)
	case u.Action == ResetPassword && out.Mailed:
		return r.end(ctx, "Password reset sent to "+name, "", result)
	case u.Action == ResetPassword:
		return r.end(ctx, "", "The email to "+name+" could not be sent; the site's log says why", result)
	case out.Mailed:
		return r.end(ctx, "Created "+name+". An email with a link to set a password was sent", "", result)
	}
	return r.end(ctx, "Created "+name+". No email could be sent: set a password in wp-admin", "", result)
}
