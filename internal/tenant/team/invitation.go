package team

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/idna"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook/event"
)

// Invitation is an invitation that was not accepted yet.
type Invitation struct {
	ID        string
	Owner     account.OwnerID
	Team      string // its name
	Email     string // normalized
	Role      account.Role
	Sites     map[site.ID]account.Role
	By        account.UserID
	InPerson  bool // not through an app, or a key that may do less than By
	CreatedAt db.Time
	ExpiresAt db.Time
}

// inviteLife is how long an invitation can be accepted.
const inviteLife = 7 * 24 * time.Hour

// NewInvitation says whom to invite, as what.
type NewInvitation struct {
	Email string
	Role  account.Role             // Optional: empty makes a guest, who needs sites.
	Sites map[site.ID]account.Role // roles on sites. Optional.
}

// maxInvitedSites is how many sites an invitation names.
const maxInvitedSites = 100

// Address returns an email address in the one form in which invitations compare it: lower case, with the domain as DNS
// has it (RFC 5891). Local parts of other letters than ASCII's are refused: two that look alike are not one person.
func Address(email string) (string, error) {
	clean, err := account.CleanEmail(email)
	if err != nil {
		return "", err
	}
	local, domain, _ := strings.Cut(clean, "@")
	ascii, err := idna.Lookup.ToASCII(domain)
	if err != nil || strings.ContainsFunc(local, func(r rune) bool { return r >= 0x80 }) ||
		strings.ContainsFunc(strings.TrimSpace(email[:strings.LastIndexByte(email, '@')]), func(r rune) bool { return r >= 0x80 }) {
		return "", fault.New(fault.Invalid, "invalid_email", "Invalid email address",
			"the part before the @ must be ASCII letters, digits and signs, and the domain a valid one").Got(email)
	}
	return local + "@" + ascii, nil
}

const invitationColumns = `i.id, i.owner_id, t.name, i.email, i.role, i.sites, i.invited_by, i.in_person, i.created_at, i.expires_at
	FROM team_invitations i JOIN teams t ON t.owner_id = i.owner_id`

func scanInvitation(row db.Scanner) (i Invitation, err error) {
	var sites string
	err = row.Scan(&i.ID, &i.Owner, &i.Team, &i.Email, &i.Role, &sites, &i.By, &i.InPerson, &i.CreatedAt, &i.ExpiresAt)
	if errors.Is(err, sql.ErrNoRows) {
		return i, errInvitation
	}
	if err != nil {
		return i, fmt.Errorf("read invitation: %w", err)
	}
	i.Sites = account.SplitSiteRoles(sites)
	return i, nil
}

var errInvitation = fault.New(fault.NotFound, "invitation_not_found", "Invitation not found",
	"it was accepted, revoked, replaced by a newer one, or has expired")

// InviteTx invites somebody by mail and returns the invitation with its token, which is not stored. An older one for the
// same address is replaced. Whether somebody has that address changes nothing.
func (s *Teams) InviteTx(ctx context.Context, tx *db.Tx, by account.Caller, n NewInvitation) (Invitation, string, error) {
	email, err := Address(n.Email)
	if err != nil {
		return Invitation{}, "", err
	}
	if n.Role == account.RoleGuest && len(n.Sites) == 0 {
		return Invitation{}, "", fault.New(fault.Invalid, "missing_role", "Missing role",
			"name a role in the team, or the sites that a guest may see")
	}
	if n.Role != account.RoleGuest && !slices.Contains(account.TeamRoles, n.Role) {
		return Invitation{}, "", errRoleName(n.Role, account.TeamRoles)
	}
	if len(n.Sites) > maxInvitedSites {
		return Invitation{}, "", fault.New(fault.Invalid, "too_many_sites", "Too many sites", "an invitation names at most 100")
	}
	if !by.Role.MayGrant(n.Role) {
		return Invitation{}, "", errTooHigh
	}
	var sites []string
	for _, id := range slices.Sorted(maps.Keys(n.Sites)) {
		if !slices.Contains(account.SiteRoles, n.Sites[id]) {
			return Invitation{}, "", errRoleName(n.Sites[id], account.SiteRoles)
		}
		if _, err := s.c.Sites.GetTx(ctx, tx, by.Owner, id); err != nil {
			return Invitation{}, "", err
		}
		sites = append(sites, string(id)+":"+string(n.Sites[id]))
	}
	// Replacing an invitation revokes it.
	old, err := scanInvitation(tx.QueryRow(ctx, `SELECT `+invitationColumns+` WHERE i.owner_id = $1 AND i.email = $2 AND i.expires_at > $3`,
		by.Owner, email, db.Now()))
	switch {
	case err != nil && !errors.Is(err, errInvitation):
		return Invitation{}, "", err
	case err == nil && !by.Role.MayGrant(old.Role):
		return Invitation{}, "", errTooHigh
	}
	if _, err := tx.Exec(ctx, `DELETE FROM team_invitations WHERE owner_id = $1 AND (email = $2 OR expires_at <= $3)`,
		by.Owner, email, db.Now()); err != nil {
		return Invitation{}, "", fmt.Errorf("replace invitation: %w", err)
	}
	if err := s.c.Limits.RequireTx(ctx, tx, by.Owner, limits.Members, 1); err != nil {
		return Invitation{}, "", err
	}
	id, token, now := db.NewID("inv"), db.Random(32), db.Now()
	if _, err := tx.Exec(ctx, `
		INSERT INTO team_invitations (id, owner_id, email, role, sites, hash, invited_by, in_person, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		id, by.Owner, email, n.Role, strings.Join(sites, " "), digest(token), by.User, by.Unrestricted(), now, now.Add(inviteLife)); err != nil {
		return Invitation{}, "", fmt.Errorf("invite: %w", err)
	}
	i, err := scanInvitation(tx.QueryRow(ctx, `SELECT `+invitationColumns+` WHERE i.id = $1`, id))
	if err != nil {
		return i, "", err
	}
	return i, token, s.mailTx(ctx, tx, by, i, token)
}

// mailTx sends an invitation to the address it is for. The mail is the same whether somebody has that address.
func (s *Teams) mailTx(ctx context.Context, tx *db.Tx, by account.Caller, i Invitation, token string) error {
	return s.c.Accounts.MailAddressTx(ctx, tx, by, i.Email, "Invitation to the team "+i.Team, fmt.Sprintf(`%s invited you to the team %s.

Open this page to see the invitation and accept it:

{page}

It works once, for 7 days, and only for %s.
If you didn't expect this invitation, ignore this email.
`, by.Email, i.Team, i.Email), "/invitations/"+token, i.ExpiresAt)
}

// ResendTx mails an invitation again, with a new token and a new 7 days. The one before stops working.
func (s *Teams) ResendTx(ctx context.Context, tx *db.Tx, by account.Caller, id string) (Invitation, string, error) {
	i, err := s.invitation(ctx, tx, by, id)
	if err != nil {
		return i, "", err
	}
	token := db.Random(32)
	i.ExpiresAt, i.By, i.InPerson = db.Now().Add(inviteLife), by.User, by.Unrestricted()
	if _, err := tx.Exec(ctx, `UPDATE team_invitations SET hash = $2, expires_at = $3, invited_by = $4, in_person = $5 WHERE id = $1`,
		id, digest(token), i.ExpiresAt, i.By, i.InPerson); err != nil {
		return i, "", fmt.Errorf("resend invitation: %w", err)
	}
	return i, token, s.mailTx(ctx, tx, by, i, token)
}

// RevokeInvitationTx takes an invitation back.
func (s *Teams) RevokeInvitationTx(ctx context.Context, tx *db.Tx, by account.Caller, id string) (Invitation, error) {
	i, err := s.invitation(ctx, tx, by, id)
	if err != nil {
		return i, err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM team_invitations WHERE id = $1`, id); err != nil {
		return i, fmt.Errorf("revoke invitation: %w", err)
	}
	return i, nil
}

// invitation returns one of the caller's team that they may change.
func (s *Teams) invitation(ctx context.Context, r db.Reader, by account.Caller, id string) (Invitation, error) {
	i, err := scanInvitation(r.QueryRow(ctx, `SELECT `+invitationColumns+` WHERE i.owner_id = $1 AND i.id = $2`, by.Owner, id))
	if err == nil && !by.Role.MayGrant(i.Role) {
		err = errTooHigh
	}
	return i, err
}

// Invitations returns a team's open invitations, the newest first.
func (s *Teams) Invitations(ctx context.Context, owner account.OwnerID) ([]Invitation, error) {
	rows, err := s.c.DB.Query(ctx, `
		SELECT `+invitationColumns+` WHERE i.owner_id = $1 AND i.expires_at > $2 ORDER BY i.created_at DESC, i.id DESC`,
		owner, db.Now())
	return db.Collect(rows, err, scanInvitation)
}

// Invitation returns the invitation that a token is for. Looking at it spends nothing: link previews do.
func (s *Teams) Invitation(ctx context.Context, token string) (Invitation, error) {
	return s.byToken(ctx, s.c.DB, token)
}

func (s *Teams) byToken(ctx context.Context, r db.Reader, token string) (Invitation, error) {
	if token == "" || len(token) > 200 {
		return Invitation{}, errInvitation
	}
	return scanInvitation(r.QueryRow(ctx, `SELECT `+invitationColumns+` WHERE i.hash = $1 AND i.expires_at > $2 AND t.deleted_at = 0`,
		digest(token), db.Now()))
}

// AcceptTx makes the user a member, once. Whoever has another address than the invited one is a Forbidden fault. What the
// inviter may not give any more at that moment is refused as if the invitation were gone.
func (s *Teams) AcceptTx(ctx context.Context, tx *db.Tx, u account.User, token string) (Member, Team, error) {
	i, err := s.byToken(ctx, tx, token)
	if err != nil {
		return Member{}, Team{}, err
	}
	if own, err := Address(u.Email); err != nil || own != i.Email {
		return Member{}, Team{}, fault.New(fault.Forbidden, "other_address", "This invitation is for another email address",
			"sign in with the address that the invitation was sent to")
	}
	if err := account.LockOwnerTx(ctx, tx, i.Owner); err != nil {
		return Member{}, Team{}, err
	}
	return s.acceptTx(ctx, tx, i, digest(token), u.ID)
}

// acceptTx makes a user a member as an invitation says, in a transaction that has locked the team. hash is that of the token
// they brought; empty: their provider proved the address.
func (s *Teams) acceptTx(ctx context.Context, tx *db.Tx, i Invitation, hash string, user account.UserID) (Member, Team, error) {
	n, err := tx.Exec(ctx, `DELETE FROM team_invitations WHERE id = $1 AND ($2 = '' OR hash = $2)`, i.ID, hash)
	if err != nil {
		return Member{}, Team{}, fmt.Errorf("accept invitation: %w", err)
	}
	if n == 0 { // another request was faster
		return Member{}, Team{}, errInvitation
	}
	inviter, err := account.ActingMembershipOf(ctx, tx, i.By, i.Owner)
	if err != nil {
		return Member{}, Team{}, err
	}
	if !inviter.Role.MayGrant(i.Role) {
		return Member{}, Team{}, fault.New(fault.Forbidden, "inviter_demoted", "This invitation is no longer valid",
			"who sent it may not give this role any more; ask an owner of the team for a new one")
	}
	if err := s.addTx(ctx, tx, i, user); err != nil {
		return Member{}, Team{}, err
	}
	m, err := s.MemberTx(ctx, tx, i.Owner, user)
	if err != nil {
		return m, Team{}, err
	}
	t, err := s.Get(ctx, tx, i.Owner)
	if err != nil {
		return m, t, err
	}
	t.Role = m.Role
	return m, t, s.c.Hooks.EmitTx(ctx, tx, i.Owner, event.MemberAdded(s.told(m, string(t.ID))))
}

// addTx writes the roles of an invitation. Members who are there already keep their role in the team where the invitation
// names none, and are a Conflict fault where it does.
func (s *Teams) addTx(ctx context.Context, tx *db.Tx, i Invitation, user account.UserID) error {
	m, err := s.MemberTx(ctx, tx, i.Owner, user)
	there := err == nil
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if !there || i.Role != account.RoleGuest {
		if err := insertMember(ctx, tx, i.Owner, user, i.Role, i.By); err != nil {
			return err
		}
		m = Member{User: user, Role: i.Role}
	}
	added := 0
	for _, id := range slices.Sorted(maps.Keys(i.Sites)) {
		if _, err := s.c.Sites.GetTx(ctx, tx, i.Owner, id); fault.Is(err, fault.NotFound) {
			continue // deleted or transferred since
		} else if err != nil {
			return err
		}
		if err := s.setSiteTx(ctx, tx, i.Owner, m, id, i.Sites[id]); err != nil {
			return err
		}
		added++
	}
	if i.Role == account.RoleGuest && added == 0 && !there {
		return errInvitation // its sites are gone
	}
	return nil
}

// uninviteTx takes a site out of the invitations to a role on it. Those to nothing else are deleted.
func (s *Teams) uninviteTx(ctx context.Context, tx *db.Tx, gone site.ID) error {
	type invited struct{ id, role, sites string }
	rows, err := tx.Query(ctx, `SELECT id, role, sites FROM team_invitations WHERE sites LIKE '%' || $1 || ':%'`, gone)
	list, err := db.Collect(rows, err, func(r db.Scanner) (i invited, err error) { return i, r.Scan(&i.id, &i.role, &i.sites) })
	if err != nil {
		return fmt.Errorf("find invitations to site: %w", err)
	}
	for _, i := range list {
		rest := slices.DeleteFunc(strings.Fields(i.sites), func(one string) bool { return strings.HasPrefix(one, string(gone)+":") })
		if i.role == string(account.RoleGuest) && len(rest) == 0 {
			_, err = tx.Exec(ctx, `DELETE FROM team_invitations WHERE id = $1`, i.id)
		} else {
			_, err = tx.Exec(ctx, `UPDATE team_invitations SET sites = $2 WHERE id = $1`, i.id, strings.Join(rest, " "))
		}
		if err != nil {
			return fmt.Errorf("take site out of invitation: %w", err)
		}
	}
	return nil
}

// digest is how tokens and codes are kept: they have too many bits to be guessed, so a fast hash is enough.
func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
