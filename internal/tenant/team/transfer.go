package team

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook/event"
)

// Part is a package that stores something of sites beside their owner.
type Part interface {
	// MoveSiteTx gives what there is of a site to another owner, and returns how much that is. What can't be moved now is
	// a Conflict fault.
	MoveSiteTx(ctx context.Context, tx *db.Tx, id site.ID, from, to account.OwnerID) (int64, error)
}

// Listed is a part whose things an offer names one by one: others can't take their place before it is accepted.
type Listed interface {
	// NamesTx lists what MoveSiteTx would move, in a fixed order.
	NamesTx(ctx context.Context, tx *db.Tx, id site.ID) ([]string, error)
}

// Breaking is a part that ends something with the move, or leaves something to the receiver.
type Breaking interface {
	// BreaksTx says for the plan what that is and what to do about it, before MoveSiteTx. Nil: nothing.
	BreaksTx(ctx context.Context, tx *db.Tx, id site.ID) ([]string, error)
}

// NamedPart is a part with what it moves, for people.
type NamedPart struct {
	Name string // a plural noun
	Part Part
}

// Hooks are the Git hooks of sites.
type Hooks interface {
	// RotateHookTx gives the site's Git hook a new address and secret, and ends what workflows may deploy, where it has such.
	RotateHookTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID) (hook, workflows bool, err error)
	// StopPollingTx ends the polling of the site's repository, and reports whether it was polled.
	StopPollingTx(ctx context.Context, tx *db.Tx, id site.ID) (polled bool, err error)
}

// Connect says what a transfer moves and cuts. It is called while the program is put together, and panics where a service is missing:
// what it would end, such as what apps may do for a member who was removed, would go on.
func (s *Teams) Connect(git Hooks, ties Ties, parts ...NamedPart) {
	if ties.Accounts == nil || ties.Connections == nil || ties.Webhooks == nil || ties.Notify == nil || ties.OAuth == nil {
		panic("team: Connect needs every service of Ties but SSO")
	}
	s.git, s.ties, s.parts = git, ties, parts
}

// Moved is how much of something moves.
type Moved struct {
	What  string
	Count int64
	Names []string // nil: the part isn't Listed
}

// maxNamed caps how many names List has.
const maxNamed = 20

// List returns the names in words; empty: none are known.
func (m Moved) List() string {
	list := strings.Join(m.Names[:min(len(m.Names), maxNamed)], ", ")
	if more := len(m.Names) - maxNamed; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// Plan says what a transfer does.
type Plan struct {
	Site   site.Site
	Moves  []Moved
	Stays  []string
	Breaks []string
	digest string
}

// named lists for the receiver which domains and databases move, a line each; empty: none do.
func (p Plan) named() string {
	var b strings.Builder
	for _, m := range p.Moves {
		if len(m.Names) > 0 {
			fmt.Fprintf(&b, "\nIts %s: %s", m.What, m.List())
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

// stays names the things that no transfer moves.
var stays = []string{
	"bandwidth and build minutes used so far",
	"the audit log and webhook deliveries until now",
	"connected Git accounts, webhooks and notification channels",
	"API keys",
}

// Transfer is a transfer that waits for the receiver.
type Transfer struct {
	ID        string
	Site      site.ID
	From      account.OwnerID
	To        account.OwnerID // empty: whoever has the address
	Email     string          // empty: a member of To
	By        account.UserID
	ExpiresAt db.Time
	offered   string
}

// transferLife is how long a transfer can be accepted.
const transferLife = 24 * time.Hour

var errDryRun = errors.New("dry run")

// lockBothTx locks both owners of a transfer, in one order everywhere: two transfers don't wait for each other.
func lockBothTx(ctx context.Context, tx *db.Tx, from, to account.OwnerID) error {
	first, second := min(from, to), max(from, to)
	if err := account.LockOwnerTx(ctx, tx, first); err != nil || first == second {
		return err
	}
	return account.LockOwnerTx(ctx, tx, second)
}

// HandOverTx moves a site at once from one account of a person to another, as MoveTx does, and says so in both audit logs. Whoever
// removes the person from either at this moment comes before, and nothing is moved, or after.
func (s *Teams) HandOverTx(
	ctx context.Context, tx *db.Tx, id site.ID, from, to audit.Actor, receiver string, keepHooks bool,
) (p Plan, err error) {
	if err := lockBothTx(ctx, tx, from.Owner, to.Owner); err != nil {
		return p, err
	}
	moved, err := s.c.Sites.GetTx(ctx, tx, from.Owner, id)
	if err != nil {
		return p, err
	}
	// The sender's line goes first: with the site may go the role on it, and the key.
	err = s.c.Accounts.AuditTx(ctx, tx, from, audit.Event{
		Action: "site.transferred", Subject: string(id), Detail: moved.Name + " to " + receiver,
	})
	if err != nil {
		return p, err
	}
	if p, err = s.MoveTx(ctx, tx, id, from.Owner, to.Owner, keepHooks); err != nil {
		return p, err
	}
	return p, s.c.Accounts.AuditTx(ctx, tx, to, audit.Event{Action: "site.received", Subject: string(id), Detail: moved.Name})
}

// MoveTx moves a site to another owner, with all that belongs to it, or changes nothing. Deploy hooks and the Git hook get
// new addresses, unless they are kept. The receiver's limits hold: a Payment fault names those that are exceeded.
func (s *Teams) MoveTx(ctx context.Context, tx *db.Tx, id site.ID, from, to account.OwnerID, keepHooks bool) (Plan, error) {
	p := Plan{Stays: stays}
	if from == to {
		return p, fault.New(fault.Conflict, "same_owner", "The site already belongs to this account", "choose another one")
	}
	if err := lockBothTx(ctx, tx, from, to); err != nil {
		return p, err
	}
	var ending bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM teams WHERE owner_id = $1 AND deleting_at > 0)`, to).Scan(&ending); err != nil {
		return p, fmt.Errorf("find receiving team: %w", err)
	}
	if ending { // the site would be deleted with it
		return p, fault.New(fault.Conflict, "team_deleting", "The receiving team is being deleted", "choose another one")
	}
	got, err := s.c.Sites.LockTx(ctx, tx, from, id)
	if err != nil {
		return p, err
	}
	p.Site = got
	if open, err := s.c.Operations.UnderTx(ctx, tx, id); err != nil {
		return p, err
	} else if open {
		return p, fault.New(fault.Conflict, "site_busy", "An operation of this site is running", "try again once it has ended")
	}
	if err := requireServedTx(ctx, tx, id, from); err != nil {
		return p, err
	}
	before, err := s.c.Limits.Use(ctx, tx, to)
	if err != nil {
		return p, err
	}
	shown := sha256.New()
	for _, part := range s.parts {
		moved := Moved{What: part.Name}
		if listed, ok := part.Part.(Listed); ok {
			if moved.Names, err = listed.NamesTx(ctx, tx, id); err != nil {
				return p, err
			}
			fmt.Fprintf(shown, "%s %q\n", part.Name, moved.Names)
		}
		if b, ok := part.Part.(Breaking); ok {
			more, err := b.BreaksTx(ctx, tx, id)
			if err != nil {
				return p, err
			}
			p.Breaks = append(p.Breaks, more...)
		}
		if moved.Count, err = part.Part.MoveSiteTx(ctx, tx, id, from, to); err != nil {
			return p, err
		}
		if moved.Count > 0 {
			p.Moves = append(p.Moves, moved)
		}
	}
	fmt.Fprintf(shown, "%q %q\n", got.Name, got.Slug)
	p.digest = hex.EncodeToString(shown.Sum(nil))
	if err := s.breakTx(ctx, tx, &p, from, to, keepHooks); err != nil {
		return p, err
	}
	if err := s.requireTx(ctx, tx, to, before); err != nil {
		return p, err
	}
	return p, s.announceTx(ctx, tx, got, from, to)
}

// requireServedTx refuses the transfer of a site whose owner owes an overdue invoice, and of one that is paused: it would be served
// again for an account that owes nothing.
func requireServedTx(ctx context.Context, tx *db.Tx, id site.ID, owner account.OwnerID) error {
	now := db.Now()
	var owes, paused bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM open_invoices WHERE owner_id = $1 AND due_at <= $2),
		EXISTS (SELECT 1 FROM paused_sites WHERE site_id = $3 AND (month = 0 OR begins <= $2 AND ends > $2 OR ends = 0 AND month = $4))`,
		owner, now, id, limits.Month(now)).Scan(&owes, &paused)
	switch {
	case err != nil:
		return fmt.Errorf("find overdue invoices: %w", err)
	case owes:
		return fault.New(fault.Payment, "unpaid_invoices", "The site's account has an overdue invoice",
			"pay it first, then transfer the site")
	case paused:
		return fault.New(fault.Payment, "site_paused", "The site is paused", "it can be transferred once it is served again")
	}
	return nil
}

// breakTx ends what ties the plan's site to its owner before.
func (s *Teams) breakTx(ctx context.Context, tx *db.Tx, p *Plan, from, to account.OwnerID, keepHooks bool) error {
	id := p.Site.ID
	if p.Site.Credential { // package site has deleted it
		p.Breaks = append(p.Breaks, "the Git credential is deleted, from the site's backups too: add one to deploy from a private repository")
	}
	polled, err := s.git.StopPollingTx(ctx, tx, id)
	if err != nil {
		return err
	}
	if polled {
		p.Breaks = append(p.Breaks, "the repository is no longer polled for new commits: turn polling on again in the Git settings")
	}
	refs, err := s.c.Sites.HookRefsTx(ctx, tx, to, id)
	if err != nil {
		return err
	}
	made, err := s.ties.OAuth.RemoveMovedTx(ctx, tx, oauth.DeployHook, refs, to)
	if err != nil {
		return err
	}
	if made > 0 {
		p.Breaks = append(p.Breaks, text.Count(made, "deploy hook")+" that apps of the sender made: deleted")
	}
	for _, kind := range []oauth.Kind{oauth.Polling, oauth.Repository} {
		if _, err := s.ties.OAuth.RemoveMovedTx(ctx, tx, kind, []string{string(id)}, to); err != nil {
			return err
		}
	}
	if !keepHooks {
		n, err := s.c.Sites.RotateHooksTx(ctx, tx, to, id)
		if err != nil {
			return err
		}
		if n > 0 {
			p.Breaks = append(p.Breaks, text.Count(n, "deploy hook")+": new URLs, which everything that calls them needs")
		}
		rotated, workflows, err := s.git.RotateHookTx(ctx, tx, to, id)
		if err != nil {
			return err
		}
		if rotated {
			p.Breaks = append(p.Breaks, "the Git hook gets a new URL and secret: enter them at the Git provider, or pushes don't deploy")
		}
		if workflows {
			p.Breaks = append(p.Breaks, "workflows of GitHub Actions no longer deploy the site: allow their repository again")
		}
	}
	cut, err := s.ties.cutTx(ctx, tx, id, from)
	if err != nil {
		return err
	}
	p.Breaks = append(p.Breaks, cut...)
	var guests int64
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM site_members WHERE site_id = $1`, id).Scan(&guests); err != nil {
		return fmt.Errorf("count roles on site: %w", err)
	}
	if guests > 0 {
		p.Breaks = append(p.Breaks, text.Count(int(guests), "member")+" without a role on this site any more")
	}
	return s.ForgetSiteTx(ctx, tx, id)
}

// requireTx is a Payment fault when the receiver has more than they may of something that grew.
func (s *Teams) requireTx(ctx context.Context, tx *db.Tx, to account.OwnerID, before []limits.Use) error {
	had := map[limits.Name]int64{}
	for _, u := range before {
		had[u.Name] = u.Used
	}
	after, err := s.c.Limits.Use(ctx, tx, to)
	if err != nil {
		return err
	}
	var over []string
	var first limits.Use
	for _, u := range after {
		if u.Left() < 0 && u.Used > had[u.Name] {
			if over == nil {
				first = u
			}
			over = append(over, fmt.Sprintf("%s: %s of %s", u.Name.Title(), u.Amount(), u.Most()))
		}
	}
	if over == nil {
		return nil
	}
	return limits.Reached(first.Name, first.Limit, first.Used, "with this site the receiver would exceed "+strings.Join(over, "; "))
}

// announceTx tells both owners, and mails the sender.
func (s *Teams) announceTx(ctx context.Context, tx *db.Tx, moved site.Site, from, to account.OwnerID) error {
	var ids [2]string
	for i, owner := range []account.OwnerID{from, to} {
		err := tx.QueryRow(ctx, `SELECT id FROM teams WHERE owner_id = $1`, owner).Scan(&ids[i])
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("find team: %w", err)
		}
	}
	e := event.SiteTransferred(s.c.Sites.Ref(moved), ids[0], ids[1])
	for _, owner := range []account.OwnerID{from, to} {
		if err := s.c.Hooks.EmitTx(ctx, tx, owner, e); err != nil {
			return err
		}
	}
	return s.c.Accounts.TellOwnerTx(ctx, tx, from, "The site "+moved.Name+" was transferred",
		"The site "+moved.Name+" was transferred to another account. The audit log says who did it.", "/")
}

// Preview says what a transfer would do: it does all of it, and takes it back. Where the receiver isn't known yet, their
// limits are not asked.
func (s *Teams) Preview(ctx context.Context, id site.ID, from, to account.OwnerID, keepHooks bool) (p Plan, err error) {
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if to == "" {
			if to, err = s.c.Accounts.OpenOwnerTx(ctx, tx, "personal"); err != nil {
				return err
			}
		}
		if p, err = s.MoveTx(ctx, tx, id, from, to, keepHooks); err != nil {
			return err
		}
		return errDryRun
	})
	if errors.Is(err, errDryRun) {
		err = nil
	}
	return p, err
}

// OfferTx makes a transfer that waits for the receiver, mails the site's owner, and returns the code that accepts it, which is not
// stored. One that waited before is replaced. An app, a service key or a restricted key would give away more than it may use: it is
// refused.
func (s *Teams) OfferTx(
	ctx context.Context, tx *db.Tx, by account.Caller, p Plan, to account.OwnerID, email string,
) (Transfer, string, error) {
	t := Transfer{
		ID: db.NewID("trf"), Site: p.Site.ID, From: by.Owner, To: to, Email: email, By: by.User, ExpiresAt: db.Now().Add(transferLife),
	}
	if !by.Whole() {
		return t, "", fault.New(fault.Forbidden, "wider_key", "Apps and restricted API keys can't transfer a site",
			"transfer it in the dashboard, or use an API key that has all scopes of its user and is not restricted to sites")
	}
	code := db.Random(32)
	if _, err := s.c.Sites.GetTx(ctx, tx, by.Owner, p.Site.ID); err != nil {
		return t, "", err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM site_transfers WHERE site_id = $1 OR expires_at <= $2`, t.Site, db.Now()); err != nil {
		return t, "", fmt.Errorf("replace transfer: %w", err)
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO site_transfers (id, site_id, from_owner, to_owner, to_email, hash, offered, created_by, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		t.ID, t.Site, t.From, t.To, t.Email, digest(code), p.digest, by.User, db.Now(), t.ExpiresAt); err != nil {
		return t, "", fmt.Errorf("offer transfer: %w", err)
	}
	name, err := s.receiverTx(ctx, tx, t)
	if err != nil {
		return t, "", err
	}
	err = s.c.Accounts.TellOwnerTx(ctx, tx, t.From, "Transfer of the site "+p.Site.Name, fmt.Sprintf(
		"%s offered the site %s to %s. The site moves when the offer is accepted within 24 hours. Cancel the offer if it is not yours to give.",
		cmp.Or(by.Email, "A user"), p.Site.Name, name), "/sites/"+string(t.Site)+"/transfer")
	if err != nil || email == "" {
		return t, code, err
	}
	return t, code, s.c.Accounts.MailAddressTx(ctx, tx, by, email, "Transfer of the site "+p.Site.Name,
		fmt.Sprintf(`%s wants to transfer the site %s to you.
%s
Open {page} within 24 hours, choose the account that receives the site, and enter this code:

%s

If you didn't expect this, ignore this email.
`, cmp.Or(by.Email, "A user"), p.Site.Name, p.named(), code), "/transfers", t.ExpiresAt)
}

var errTransfer = fault.New(fault.NotFound, "transfer_not_found", "Transfer not found",
	"it was accepted, canceled or replaced, or has expired")

func (s *Teams) transfer(ctx context.Context, r db.Reader, where string, args ...any) (t Transfer, err error) {
	err = r.QueryRow(ctx, `SELECT id, site_id, from_owner, to_owner, to_email, offered, created_by, expires_at FROM site_transfers
		WHERE `+where, args...).
		Scan(&t.ID, &t.Site, &t.From, &t.To, &t.Email, &t.offered, &t.By, &t.ExpiresAt)
	if errors.Is(err, sql.ErrNoRows) {
		return t, errTransfer
	}
	if err != nil {
		return t, fmt.Errorf("read transfer: %w", err)
	}
	return t, nil
}

// receiverTx returns whom a transfer is for, in words.
func (s *Teams) receiverTx(ctx context.Context, tx *db.Tx, t Transfer) (string, error) {
	if t.Email != "" {
		return t.Email, nil
	}
	to, err := s.Get(ctx, tx, t.To)
	return "the team " + to.Slug, err
}

// CancelTransferTx takes an offered transfer back.
func (s *Teams) CancelTransferTx(ctx context.Context, tx *db.Tx, by account.Caller, id string) (Transfer, error) {
	t, err := s.transfer(ctx, tx, `id = $1 AND from_owner = $2`, id, by.Owner)
	if err != nil {
		return t, err
	}
	n, err := tx.Exec(ctx, `DELETE FROM site_transfers WHERE id = $1`, id)
	if err == nil && n == 0 {
		err = errTransfer
	}
	return t, err
}

// AcceptTransferTx moves the site of an offered transfer to who accepts it, once. What the sender was shown must still be so, and
// the sender must still be able to transfer it.
func (s *Teams) AcceptTransferTx(ctx context.Context, tx *db.Tx, by account.Caller, code string, keepHooks bool) (Plan, Transfer, error) {
	if code == "" || len(code) > 200 {
		return Plan{}, Transfer{}, errTransfer
	}
	t, err := s.transfer(ctx, tx, `hash = $1 AND expires_at > $2`, digest(code), db.Now())
	if err != nil {
		return Plan{}, t, err
	}
	own, err := Address(by.Email)
	if t.Email != "" && (err != nil || own != t.Email || by.Service) || t.To != "" && t.To != by.Owner {
		return Plan{}, t, fault.New(fault.Forbidden, "other_receiver", "This transfer is for another account",
			"use a key of the account or team that it was offered to")
	}
	n, err := tx.Exec(ctx, `DELETE FROM site_transfers WHERE id = $1`, t.ID)
	if err != nil {
		return Plan{}, t, fmt.Errorf("accept transfer: %w", err)
	}
	if n == 0 { // another request was faster, or it was canceled at this moment
		return Plan{}, t, errTransfer
	}
	if err := lockBothTx(ctx, tx, t.From, by.Owner); err != nil { // whoever removes the sender at this moment comes before or after
		return Plan{}, t, err
	}
	sender, err := account.ActingMembershipOf(ctx, tx, t.By, t.From)
	if err != nil {
		return Plan{}, t, err
	}
	if !sender.Role.AtLeast(account.RoleAdmin) {
		return Plan{}, t, errTransfer
	}
	p, err := s.MoveTx(ctx, tx, t.Site, t.From, by.Owner, keepHooks)
	if err == nil && p.digest != t.offered {
		err = fault.New(fault.Conflict, "transfer_changed", "The site has changed since it was offered",
			"ask the sender to offer it again")
	}
	return p, t, err
}
