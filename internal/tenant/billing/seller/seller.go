// Package seller owns those who resell the installation's hosting under a name of their own: the name, logo, sender and host
// that their customers see, the series that their invoices are numbered in, and which accounts are their customers.
//
// Accounts that are nobody's customer are the installation's own, as all are where there is no seller. Only operators add sellers and
// say whose customer an account is. What a seller's invoices say, and its terms, are settings of package party under the seller's id;
// invoices keep both as they were when they became final. A logo from outside is decoded and encoded anew, so that what is served is a PNG
// that this program wrote.
package seller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // logos may be JPEG
	"image/png"
	"io"
	"net/mail"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/billing/party"
)

// Seller is somebody who resells.
type Seller struct {
	ID        string // the operator's short name for it
	Name      string
	Series    string // that its invoices' numbers begin with
	Sender    string // of emails; empty: the installation's
	ReplyTo   string // empty: none
	Logo      []byte // a PNG; nil: none, or not read; empty: the one that is there is removed
	Digest    string // of the logo; empty: there is none
	Host      string // at which its customers reach the dashboard; empty: the installation's. Hosts.SetTx sets it.
	Customers int64  // accounts that are assigned to it
}

// Brand is what a seller's customers see in the place of the installation's name. The zero Brand is the installation's own.
type Brand struct {
	Name string
	Logo string // digest of the logo; empty: none
}

// What a seller may be. A logo's pixels are bounded before they are decoded.
const (
	mostSellers = 1000
	logoBytes   = 256 << 10
	logoSide    = 512
)

var (
	idForm     = lazyregexp.New(`^[a-z][a-z0-9-]{0,31}$`)
	seriesForm = lazyregexp.New(`^[A-Z][A-Z0-9]{0,7}$`)
)

// ReadFile reads a seller that an operator wrote as JSON, with its settings where the file has any.
func ReadFile(r io.Reader) (s Seller, settings *party.Settings, err error) {
	f := struct {
		Name     *string         `json:"name"`
		Series   *string         `json:"series"`
		Sender   *string         `json:"sender"`
		ReplyTo  *string         `json:"replyTo"`
		Settings json.RawMessage `json:"settings"`
	}{&s.Name, &s.Series, &s.Sender, &s.ReplyTo, nil}
	if err := party.ReadFile(r, &f); err != nil {
		return s, nil, err
	}
	if f.Settings == nil {
		return s, nil, nil
	}
	is, err := party.ReadSettings(bytes.NewReader(f.Settings))
	return s, &is, err
}

// ReadLogo reads a PNG or JPEG of at most 256 KiB and 512 by 512 pixels, and returns it as a PNG that has the picture alone.
func ReadLogo(r io.Reader) ([]byte, error) {
	refuse := func(details string) ([]byte, error) {
		return nil, fault.New(fault.Invalid, "invalid_logo", "Invalid logo", details)
	}
	raw, err := io.ReadAll(io.LimitReader(r, logoBytes+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > logoBytes {
		return refuse("a logo has at most 256 KiB")
	}
	c, kind, err := image.DecodeConfig(bytes.NewReader(raw))
	if err != nil || kind != "png" && kind != "jpeg" {
		return refuse("a logo is a PNG or JPEG file")
	}
	if c.Width < 1 || c.Height < 1 || c.Width > logoSide || c.Height > logoSide {
		return refuse("a logo has at most 512 by 512 pixels")
	}
	picture, _, err := image.Decode(bytes.NewReader(raw))
	if err != nil {
		return refuse("the file is damaged")
	}
	var out bytes.Buffer
	if err := png.Encode(&out, picture); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (s Seller) check() error {
	switch {
	case !idForm.MatchString(s.ID):
		return fault.InvalidField("id", "id must be 1 to 32 lower-case letters, digits and hyphens, and begin with a letter", s.ID)
	case strings.TrimSpace(s.Name) == "" || !text.Fits(s.Name, 1, 60):
		return fault.InvalidField("name", "name must have 1 to 60 characters on one line", s.Name)
	case !seriesForm.MatchString(s.Series) || s.Series == "CN":
		return fault.InvalidField("series", "series must be 1 to 8 capital letters and digits, begin with a letter, and not be CN", s.Series)
	}
	for name, address := range map[string]string{"sender": s.Sender, "replyTo": s.ReplyTo} {
		if address == "" {
			continue
		}
		if _, err := mail.ParseAddress(address); err != nil || !text.Fits(address, 1, 320) {
			return fault.InvalidField(name, name+" must be an email address, such as Harbor <hello@harbor.example>", address)
		}
	}
	return nil
}

// SaveTx adds a seller, or replaces what is known of it. With a nil logo the one that is there stays. The series never changes: numbers of
// invoices have no gaps within it.
func SaveTx(ctx context.Context, tx *db.Tx, s Seller) error {
	if err := s.check(); err != nil {
		return err
	}
	var was string
	var others, taken int
	if err := tx.QueryRow(ctx, `
		SELECT COALESCE((SELECT series FROM billing_sellers WHERE id = $1), ''), (SELECT count(*) FROM billing_sellers WHERE id <> $1),
			(SELECT count(*) FROM billing_sellers WHERE id <> $1 AND series = $2)`, s.ID, s.Series).Scan(&was, &others, &taken); err != nil {
		return fmt.Errorf("read seller: %w", err)
	}
	switch {
	case was != "" && was != s.Series:
		return fault.New(fault.Conflict, "series_fixed", "The series of a seller can't change",
			"it is "+was+": numbers of invoices have no gaps within it")
	case taken > 0:
		return fault.New(fault.Conflict, "series_taken", "Another seller has this series",
			"each seller numbers its invoices in a series of its own")
	case was == "" && others >= mostSellers:
		return fault.New(fault.Conflict, "too_many_sellers", "Too many sellers", fmt.Sprintf("an installation has at most %d", mostSellers))
	}
	digest := ""
	if len(s.Logo) > 0 {
		sum := sha256.Sum256(s.Logo)
		digest = hex.EncodeToString(sum[:])
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO billing_sellers (id, name, series, sender, reply_to, logo, logo_digest, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, sender = excluded.sender, reply_to = excluded.reply_to,
			updated_at = excluded.updated_at,
			logo = CASE WHEN $9 THEN billing_sellers.logo ELSE excluded.logo END,
			logo_digest = CASE WHEN $9 THEN billing_sellers.logo_digest ELSE excluded.logo_digest END`,
		s.ID, s.Name, s.Series, s.Sender, s.ReplyTo, base64.StdEncoding.EncodeToString(s.Logo), digest, db.Now(), s.Logo == nil); err != nil {
		return fmt.Errorf("write seller: %w", err)
	}
	tx.Notify(topic) // name and logo are those of its host, too
	return nil
}

// AssignTx makes an account a seller's customer; an empty seller: the installation's. What is invoiced from now on is invoiced by that
// seller; invoices that exist stay as they are.
func AssignTx(ctx context.Context, tx *db.Tx, owner id.Owner, seller string) error {
	if seller == "" {
		if _, err := tx.Exec(ctx, `DELETE FROM billing_seller_owners WHERE owner_id = $1`, owner); err != nil {
			return fmt.Errorf("write customer of seller: %w", err)
		}
		return nil
	}
	n, err := tx.Exec(ctx, `
		INSERT INTO billing_seller_owners (owner_id, seller_id, since) SELECT $1, id, $3 FROM billing_sellers WHERE id = $2
		ON CONFLICT (owner_id) DO UPDATE SET seller_id = excluded.seller_id, since = excluded.since`, owner, seller, db.Now())
	if err != nil {
		return fmt.Errorf("write customer of seller: %w", err)
	}
	if n == 0 {
		return fault.Missing("seller")
	}
	return nil
}

const query = `
	SELECT s.id, s.name, s.series, s.sender, s.reply_to, s.logo_digest, s.host,
		(SELECT count(*) FROM billing_seller_owners o WHERE o.seller_id = s.id)
	FROM billing_sellers s `

func scan(r db.Scanner) (s Seller, err error) {
	return s, r.Scan(&s.ID, &s.Name, &s.Series, &s.Sender, &s.ReplyTo, &s.Digest, &s.Host, &s.Customers)
}

// List returns all sellers by id, without their logos.
func List(ctx context.Context, r db.Reader) ([]Seller, error) {
	rows, err := r.Query(ctx, query+`ORDER BY s.id`)
	list, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, fmt.Errorf("list sellers: %w", err)
	}
	return list, nil
}

// Get returns a seller without its logo, or a NotFound fault.
func Get(ctx context.Context, r db.Reader, id string) (Seller, error) {
	s, err := scan(r.QueryRow(ctx, query+`WHERE s.id = $1`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return s, fault.Missing("seller")
	}
	if err != nil {
		return s, fmt.Errorf("read seller: %w", err)
	}
	return s, nil
}

// BrandOf returns under which name an account's pages are.
func BrandOf(ctx context.Context, r db.Reader, owner id.Owner) (b Brand, err error) {
	err = r.QueryRow(ctx, `SELECT name, logo_digest FROM owner_brands WHERE owner_id = $1`, owner).Scan(&b.Name, &b.Logo)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return b, fmt.Errorf("read brand: %w", err)
	}
	return b, nil
}

// Logo returns the PNG with a digest, or a NotFound fault.
func Logo(ctx context.Context, r db.Reader, digest string) ([]byte, error) {
	var text string
	err := r.QueryRow(ctx, `SELECT logo FROM billing_sellers WHERE logo_digest = $1 AND logo <> '' ORDER BY id LIMIT 1`, digest).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fault.Missing("logo")
	}
	if err != nil {
		return nil, fmt.Errorf("read logo: %w", err)
	}
	return base64.StdEncoding.DecodeString(text)
}
