package team

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Receiver holds whom a site goes to.
type Receiver struct {
	Owner  account.OwnerID // empty: not known
	Email  string          // whom the code is for; empty: a member of Owner
	Caller *account.Caller // as whom the site is received at once; nil: by code
	Plan   Plan            // filled by the caller
}

// Receiver finds whom a site goes to, by the id or slug of a team or an email address, and whether the caller may receive
// it for them.
func (s *Teams) Receiver(ctx context.Context, c account.Caller, to string) (Receiver, error) {
	u, err := s.c.Accounts.User(ctx, c.User)
	if err != nil {
		return Receiver{}, err
	}
	person := c.Unrestricted()
	if strings.Contains(to, "@") {
		email, err := Address(to)
		if err != nil {
			return Receiver{}, err
		}
		if own, err := Address(u.Email); err == nil && own == email && person {
			as := u.Caller()
			return Receiver{Owner: u.Owner, Caller: &as}, nil
		}
		return Receiver{Email: email}, nil
	}
	t, err := s.Named(ctx, s.c.DB, strings.TrimSpace(to))
	if err != nil {
		return Receiver{}, err
	}
	out := Receiver{Owner: t.Owner}
	if person {
		as, err := s.c.Accounts.Beside(ctx, s.c.DB, c, u, t.Owner)
		if err == nil && as.Role.AtLeast(account.RoleAdmin) {
			out.Caller = &as
		} else if err != nil && fault.As(err) == nil {
			return out, err
		}
	}
	return out, nil
}

// NameOf returns the account that a caller acts for, in words.
func NameOf(c account.Caller) string {
	if c.Team != "" {
		return "the team " + c.Slug
	}
	return c.Email
}

// Offered returns the open offer of a site, if there is one.
func (s *Teams) Offered(ctx context.Context, owner account.OwnerID, id site.ID) (Transfer, bool, error) {
	t, err := s.transfer(ctx, s.c.DB, `site_id = $1 AND from_owner = $2 AND expires_at > $3`, id, owner, db.Now())
	if fault.Is(err, fault.NotFound) {
		return t, false, nil
	}
	return t, err == nil, err
}

// OwnerName returns the name of the team that an owner is; empty: a person's account.
func (s *Teams) OwnerName(ctx context.Context, owner account.OwnerID) (name string, err error) {
	err = s.c.DB.QueryRow(ctx, `SELECT name FROM teams WHERE owner_id = $1`, owner).Scan(&name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("find team: %w", err)
	}
	return name, nil
}
