package connection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
)

const (
	refreshMargin = 5 * time.Minute        // remaining validity below which a token is refreshed
	refreshLease  = 2 * askTimeout         // longer than a refresh can take
	refreshPause  = 100 * time.Millisecond // delay between polls for another process's refresh
	refreshAfter  = 7 * 24 * time.Hour     // age at which unused tokens are refreshed, before the refresh token expires
	refreshEvery  = time.Hour
)

// due reports whether the token must be refreshed before use.
func (c Connection) due(now db.Time) bool {
	return c.ExpiresAt != 0 && (now.Sub(c.ExpiresAt) > -refreshMargin || now.Sub(c.refreshedAt) > refreshAfter)
}

// errEnded returns the fault of a connection whose tokens the provider rejects.
func errEnded(host string) error {
	return fault.New(fault.Conflict, "connection_ended", "The account at "+host+" has to be connected again",
		"its access was revoked or has expired; connect it under Account, Git accounts")
}

// fresh returns the credentials of a connection with a token valid for some minutes. Only one process refreshes a token
// while the others wait, since some providers revoke the old token at once.
func (s *Connections) fresh(ctx context.Context, c Connection) (secret, error) {
	for {
		k, err := s.open(c)
		switch {
		case err != nil:
			return secret{}, err
		case c.Ended:
			return secret{}, errEnded(c.Host)
		case !c.due(db.Now()):
			return k, nil
		case k.Refresh == "" && db.Now() < c.ExpiresAt:
			return k, nil
		case k.Refresh == "":
			return secret{}, errEnded(c.Host)
		}
		mine := false
		err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
			n, err := tx.Exec(ctx,
				`UPDATE connections SET refreshing_until = $3 WHERE id = $1 AND token = $2 AND refreshing_until <= $4`,
				c.ID, c.box, db.Now().Add(refreshLease), db.Now())
			mine = n == 1
			return err
		})
		if err != nil {
			return secret{}, fmt.Errorf("lease refresh of %s: %w", c.ID, err)
		}
		if mine {
			return s.refresh(ctx, c, k)
		}
		select {
		case <-ctx.Done():
			return secret{}, ctx.Err()
		case <-time.After(refreshPause):
		}
		if c, err = s.Get(ctx, s.c.DB, c.Owner, c.ID); err != nil {
			return secret{}, err
		}
	}
}

// refresh requests a new token under the caller's lease. It ignores cancellation of ctx, since a new token that isn't
// stored may leave only a revoked one.
func (s *Connections) refresh(ctx context.Context, c Connection, k secret) (secret, error) {
	ctx = context.WithoutCancel(ctx)
	release := func(ended bool) error {
		return s.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx,
				`UPDATE connections SET refreshing_until = 0, ended = $3 WHERE id = $1 AND token = $2`, c.ID, c.box,
				ended)
			return err
		})
	}
	a, err := s.App(ctx, s.c.DB, c.App)
	var got *oauth2.Token
	if err == nil {
		got, err = s.token(ctx, a, func(ctx context.Context, c *oauth2.Config) (*oauth2.Token, error) {
			return c.TokenSource(ctx, &oauth2.Token{RefreshToken: k.Refresh}).Token()
		})
	}
	if err != nil {
		ended := ended(err)
		s.c.Log.WarnContext(ctx, "token of a connected account not refreshed", "connection", c.ID, "ended", ended, "err", err)
		if err := release(ended); err != nil {
			return secret{}, fmt.Errorf("release refresh of %s: %w", c.ID, err)
		}
		switch {
		case ended:
			return secret{}, errEnded(c.Host)
		case db.Now() < c.ExpiresAt: // still valid; the next use retries
			return k, nil
		}
		return secret{}, tellToken(err, c.Host)
	}
	k.Token, k.Refresh = got.AccessToken, got.RefreshToken // oauth2 keeps the old refresh token if there is no new one
	text, err := json.Marshal(k)
	if err != nil {
		return secret{}, err
	}
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx,
			`UPDATE connections SET token = $3, expires_at = $4, refreshed_at = $5, refreshing_until = 0 WHERE id = $1 AND token = $2`,
			c.ID, c.box, s.c.Seal.Seal(text, purpose(c.ID)), expires(got), db.Now())
		return err
	})
	if err != nil {
		return secret{}, fmt.Errorf("store refreshed token of %s: %w", c.ID, err)
	}
	return k, nil
}

// Run refreshes tokens unused for a week until ctx ends.
func (s *Connections) Run(ctx context.Context) error {
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	for {
		rows, err := s.c.DB.Query(
			ctx,
			`SELECT `+columns+` FROM connections c WHERE c.expires_at > 0 AND NOT c.ended AND c.refreshed_at <= $1
				ORDER BY c.refreshed_at LIMIT 1000`,
			db.Now().Add(-refreshAfter),
		)
		list, err := db.Collect(rows, err, scan)
		if err != nil && ctx.Err() == nil {
			s.c.Log.WarnContext(ctx, "tokens of connected accounts not refreshed", "err", err)
		}
		for _, c := range list {
			if _, err := s.fresh(ctx, c); err != nil && ctx.Err() == nil && fault.As(err) == nil {
				s.c.Log.WarnContext(ctx, "token of a connected account not refreshed", "connection", c.ID, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Revoke is the job that revokes a token at its provider. It may run twice, since a revoked token stays revoked.
type Revoke struct {
	App   AppID  `json:"app"`
	Token string `json:"token"` // sealed
}

// Kind implements [job.Args].
func (Revoke) Kind() string { return "connection.revoke" }

// revokeTx enqueues the revocation of a connection's token if an app obtained it and the provider supports that.
func (s *Connections) revokeTx(ctx context.Context, tx *db.Tx, c Connection) error {
	if c.App == "" || c.Provider != forge.GitHub && oauthOf[c.Provider].revoke == "" {
		return nil
	}
	k, err := s.open(c)
	if err != nil { // the encryption key is lost
		s.c.Log.WarnContext(ctx, "token not revoked", "connection", c.ID, "err", err)
		return nil
	}
	_, err = job.Enqueue(ctx, tx, Revoke{
		c.App,
		s.c.Seal.Seal([]byte(k.Token), "revoke"),
	}, job.Options{Queue: QueueName, Share: string(c.Owner)})
	return err
}

func (s *Connections) revoke(ctx context.Context, r Revoke, _ int64) error {
	a, err := s.App(ctx, s.c.DB, r.App)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	k, err := s.openApp(a)
	if err != nil {
		return err
	}
	token, err := s.c.Seal.Open(r.Token, "revoke")
	if err != nil {
		return err
	}
	if a.Provider == forge.GitHub {
		w := s.api(a.Provider, a.Host, secret{}).(github).wire
		w.user, w.password = a.ClientID, k.Client
		err = w.send(ctx, http.MethodDelete, "/applications/"+url.PathEscape(a.ClientID)+"/token", map[string]string{
			"access_token": string(token),
		}, nil)
	} else { // RFC 7009 §2.1
		base, client := s.home(a.Host)
		err = wire{client: client, base: base}.send(ctx, http.MethodPost, oauthOf[a.Provider].revoke, url.Values{
			"client_id": {a.ClientID}, "client_secret": {k.Client}, "token": {string(token)},
		}, nil)
	}
	var no *refusal
	if errors.As(err, &no) && no.lasting() {
		s.c.Log.WarnContext(ctx, "token not revoked", "app", a.ID, "err", err)
		return nil // the token or the app no longer exists
	}
	return err
}
