package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// Bounds of a client ID metadata document (draft-ietf-oauth-client-id-metadata-document): the address at
// which an app that nobody registered here describes itself.
const (
	documentSize = 5 << 10
	documentTime = 5 * time.Second
	minFresh     = 5 * time.Minute
	maxFresh     = 24 * time.Hour
)

var errNoApp = fault.New(fault.NotFound, "unknown_client", "Unknown app",
	"client_id must be the id of an app registered here, or the https URL of a client ID metadata document")

// client returns the app that a person is asked about, and reads its metadata document where it is
// described by one.
func (s *Server) client(ctx context.Context, by account.Caller, id AppID) (App, error) {
	a, err := s.find(ctx, s.c.DB, id)
	switch {
	case err == nil && (!a.Document() || a.freshUntil > db.Now()):
		return a, nil
	case err != nil && !fault.Is(err, fault.NotFound):
		return App{}, err
	case !strings.HasPrefix(string(id), "https://") || s.c.Out == nil:
		return App{}, errNoApp
	}
	return s.readDocument(ctx, by, id)
}

// checkDocumentURL refuses what can't be the address of a document (the draft's §3).
func checkDocumentURL(id AppID) error {
	u, err := url.Parse(string(id))
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" || strings.Contains(string(id), "#") ||
		len(u.Path) < 2 || len(id) > maxRedirectLen || slices.Contains(strings.Split(u.EscapedPath(), "/"), "..") ||
		slices.Contains(strings.Split(u.EscapedPath(), "/"), ".") {
		return errNoApp
	}
	return nil
}

func documentFault(details string) error {
	return fault.New(fault.Invalid, "invalid_client_metadata", "Invalid client ID metadata document", details)
}

func (s *Server) readDocument(ctx context.Context, by account.Caller, id AppID) (App, error) {
	if err := checkDocumentURL(id); err != nil {
		return App{}, err
	}
	release, err := s.fetches.Take(ctx, fair.Who{Owner: string(by.Owner)})
	if errors.Is(err, fair.ErrFull) {
		return App{}, &fault.Error{Kind: fault.Unavailable, Message: "Too many apps are being looked up", RetryAfter: documentTime}
	}
	if err != nil {
		return App{}, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, documentTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(id), nil)
	if err != nil {
		return App{}, errNoApp
	}
	req.Header.Set("Accept", "application/json")
	res, err := s.c.Out.Do(req)
	if err != nil { // without its text, which may tell what is in our network
		return App{}, documentFault("the document could not be fetched")
	}
	defer res.Body.Close()
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode != http.StatusOK:
		return App{}, documentFault("the document's address answered " + strconv.Itoa(res.StatusCode))
	case kind != "application/json" && !strings.HasSuffix(kind, "+json"):
		return App{}, documentFault("the document must be application/json")
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, documentSize+1))
	if err != nil {
		return App{}, documentFault("the document could not be read")
	}
	if len(body) > documentSize {
		return App{}, documentFault("the document has more than 5 KiB")
	}
	n, err := parseDocument(id, body)
	if err != nil {
		return App{}, err
	}
	return s.keepDocument(ctx, id, n, freshness(res.Header))
}

// parseDocument reads the fields of RFC 7591 §2 that matter here.
func parseDocument(id AppID, body []byte) (NewApp, error) {
	var d struct {
		ClientID     AppID    `json:"client_id"`
		Name         string   `json:"client_name"`
		Website      string   `json:"client_uri"`
		RedirectURIs []string `json:"redirect_uris"`
		Auth         string   `json:"token_endpoint_auth_method"`
	}
	if json.Unmarshal(body, &d) != nil {
		return NewApp{}, documentFault("the document is not a JSON object of the expected shape")
	}
	if d.ClientID != id {
		return NewApp{}, documentFault("client_id in the document must equal the document's URL")
	}
	if d.Auth != "" && d.Auth != "none" {
		return NewApp{}, documentFault("token_endpoint_auth_method must be none")
	}
	if len(d.RedirectURIs) == 0 {
		return NewApp{}, documentFault("redirect_uris is missing")
	}
	n := NewApp{Name: d.Name, Website: d.Website, RedirectURIs: d.RedirectURIs}
	if n.Name == "" {
		u, _ := url.Parse(string(id))
		n.Name = u.Hostname()
	}
	return n, n.check()
}

// freshness is how long a document may be used: as its Cache-Control says, within bounds.
func freshness(h http.Header) time.Duration {
	for part := range strings.SplitSeq(h.Get("Cache-Control"), ",") {
		if text, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(part)), "max-age="); ok {
			if n, err := strconv.ParseUint(text, 10, 31); err == nil {
				return min(max(time.Duration(n)*time.Second, minFresh), maxFresh)
			}
		}
	}
	return minFresh
}

func (s *Server) keepDocument(ctx context.Context, id AppID, n NewApp, fresh time.Duration) (a App, err error) {
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		a, err = scanApp(tx.QueryRow(ctx, `
			INSERT INTO oauth_apps (id, owner_id, name, website, redirect_uris, confidential, secret, secret_hint,
			  old_secret, old_secret_until, disabled_at, fresh_until, created_at)
			VALUES ($1, '', $2, $3, $4, $5, '', '', '', 0, 0, $6, $7)
			ON CONFLICT (id) DO UPDATE SET name = excluded.name, website = excluded.website,
			  redirect_uris = excluded.redirect_uris, fresh_until = excluded.fresh_until
			RETURNING `+appColumns,
			id, n.Name, n.Website, strings.Join(n.RedirectURIs, "\n"), false, db.Now().Add(fresh), db.Now()))
		return err
	})
	if err != nil {
		return App{}, fmt.Errorf("keep client ID metadata document: %w", err)
	}
	return a, nil
}
