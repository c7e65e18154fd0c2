// Package seller owns resellers: the name, logo, sender and host that their customers see, their invoice number series,
// and the assignment of accounts to them.
//
// Accounts without a seller belong to the installation. Only operators add sellers and assign accounts. A seller's
// invoice texts and terms are settings of package party under the seller's ID; final invoices keep copies. An uploaded
// logo is decoded and re-encoded, so that only PNGs written by this program are served.
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

// Seller is a reseller.
type Seller struct {
	ID        string // short name chosen by the operator
	Name      string
	Series    string // prefix of its invoice numbers
	Sender    string // From address of emails; empty: the installation's
	ReplyTo   string // optional
	Logo      []byte // PNG bytes. nil leaves the logo unchanged; empty removes it.
	Digest    string // of the logo; empty: no logo
	Host      string // of the dashboard for its customers; empty: the installation's. Set by [Hosts.SetTx].
	Customers int64  // number of accounts assigned to it
}

// Brand replaces the installation's name for a seller's customers. The zero Brand is the installation's.
type Brand struct {
	Name string
	Logo string // digest of the logo; empty: no logo
}

// Limits of a seller's fields. A logo's pixels are checked before decoding.
const (
	maxSellers = 1000
	logoBytes  = 256 << 10
	logoSide   = 512
)

var (
	idForm     = lazyregexp.New(`^[a-z][a-z0-9-]{0,31}$`)
	seriesForm = lazyregexp.New(`^[A-Z][A-Z0-9]{0,7}$`)
)

// ReadFile reads a seller from an operator's JSON file, and its settings if the file contains any.
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

// ReadLogo reads a PNG or JPEG of at most 256 KiB and 512 × 512 pixels and returns it as a PNG without metadata.
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

// SaveTx adds or replaces a seller. A nil logo leaves the stored one. The series can't change, since invoice numbers in
// a series have no gaps.
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
	case was == "" && others >= maxSellers:
		return fault.New(fault.Conflict, "too_many_sellers", "Too many sellers", fmt.Sprintf("an installation has at most %d", maxSellers))
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
	tx.Notify(topic) // hosts include name and logo
	return nil
}

// AssignTx assigns an account to a seller, or to the installation if seller is empty. Only later invoices are issued by
// the new seller.
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

// List returns all sellers by ID, without logos.
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

// BrandOf returns the brand of an owner's pages.
func BrandOf(ctx context.Context, r db.Reader, owner id.Owner) (b Brand, err error) {
	err = r.QueryRow(ctx, `SELECT name, logo_digest FROM owner_brands WHERE owner_id = $1`, owner).Scan(&b.Name, &b.Logo)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return b, fmt.Errorf("read brand: %w", err)
	}
	return b, nil
}

// Logo returns the PNG with the digest, or a NotFound fault.
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
