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
	refreshMargin = 5 * time.Minute        // before its end a token is taken for ended
	refreshLease  = 2 * askTimeout         // longer than a refresh can take
	refreshPause  = 100 * time.Millisecond // between two looks at whether another one is done
	refreshAfter  = 7 * 24 * time.Hour     // an unused token is refreshed, so that what refreshes it does not end
	refreshEvery  = time.Hour
)

// due reports whether the connection's token is to be refreshed before it is used.
func (c Connection) due(now db.Time) bool {
	return c.ExpiresAt != 0 && (now.Sub(c.ExpiresAt) > -refreshMargin || now.Sub(c.refreshedAt) > refreshAfter)
}

// errEnded is the fault of a connection whose forge takes its tokens no more.
func errEnded(host string) error {
	return fault.New(fault.Conflict, "connection_ended", "The account at "+host+" has to be connected again",
		"its access was revoked or has expired; connect it under Account, Git accounts")
}

// fresh returns what a connection authenticates with, with a token that lasts some minutes.
// Of all processes one refreshes a token; the others wait for it, because some forges end
// the old token at once.
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
			n, err := tx.Exec(
				ctx,
				`UPDATE connections SET refreshing_until = $3 WHERE id = $1 AND token = $2 AND refreshing_until <= $4`,
				c.ID, c.box, db.Now().Add(refreshLease), db.Now(),
			)
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

// refresh asks for a new token, with the lease. What came is stored even where nobody waits
// any more: the old one may be of no use.
func (s *Connections) refresh(ctx context.Context, c Connection, k secret) (secret, error) {
	ctx = context.WithoutCancel(ctx)
	release := func(ended bool) error {
		return s.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(
				ctx, `UPDATE connections SET refreshing_until = 0, ended = $3 WHERE id = $1 AND token = $2`, c.ID,
				c.box, ended,
			)
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
		case db.Now() < c.ExpiresAt: // it still works; the next use tries again
			return k, nil
		}
		return secret{}, tellToken(err, c.Host)
	}
	k.Token, k.Refresh = got.AccessToken, got.RefreshToken // the old one where the forge sends none
	text, err := json.Marshal(k)
	if err != nil {
		return secret{}, err
	}
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(
			ctx,
			`UPDATE connections SET token = $3, expires_at = $4, refreshed_at = $5, refreshing_until = 0 WHERE id = $1 AND token = $2`,
			c.ID, c.box, s.c.Seal.Seal(text, purpose(c.ID)), expires(got), db.Now(),
		)
		return err
	})
	if err != nil {
		return secret{}, fmt.Errorf("store refreshed token of %s: %w", c.ID, err)
	}
	return k, nil
}

// Run refreshes tokens that nobody used for a week, until ctx ends.
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

// Revoke is the job that has a forge revoke a token. It may run twice: a token that is
// revoked stays so.
type Revoke struct {
	App   AppID  `json:"app"`
	Token string `json:"token"` // sealed
}

// Kind names the job.
func (Revoke) Kind() string { return "connection.revoke" }

// revokeTx has the forge revoke a connection's token, where an app got it and the forge
// offers that.
func (s *Connections) revokeTx(ctx context.Context, tx *db.Tx, c Connection) error {
	if c.App == "" || c.Provider != forge.GitHub && oauthOf[c.Provider].revoke == "" {
		return nil
	}
	k, err := s.open(c)
	if err != nil { // the key that encrypted it is lost
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
	} else { // RFC 7009
		base, client := s.home(a.Host)
		err = wire{client: client, base: base}.send(ctx, http.MethodPost, oauthOf[a.Provider].revoke, url.Values{
			"client_id": {a.ClientID}, "client_secret": {k.Client}, "token": {string(token)},
		}, nil)
	}
	var no *refusal
	if errors.As(err, &no) && no.lasting() {
		s.c.Log.WarnContext(ctx, "token not revoked", "app", a.ID, "err", err)
		return nil // it is none any more, or the app isn't
	}
	return err
}
