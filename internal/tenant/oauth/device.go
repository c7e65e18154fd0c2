package oauth

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/limits"
)

// Device is a program without a browser of its own that asks for access (RFC 8628).
type Device struct {
	Code     string // eight letters that a person types
	App      App
	Scopes   account.Scopes
	Addr     string // of the program that asked
	Since    db.Time
	Decided  bool
	Until    db.Time
	Interval time.Duration // between two polls, for the program
}

// The most requests of devices that wait at once.
const (
	maxDevices        = 10_000 // in the installation
	maxDevicesNetwork = 100    // of one network
)

// BeginDevice starts a device's request and returns the secret with which it polls. network is the widest one that a
// customer of a provider has around the address. The error is an *Error, or the database's.
func (s *Server) BeginDevice(ctx context.Context, a App, scope, addr, network string) (d Device, secret string, err error) {
	if a.Document() {
		return Device{}, "", bad("unauthorized_client", "apps described by a metadata document use the authorization code grant")
	}
	scopes, err := s.askedScopes(a, scope)
	if err != nil {
		return Device{}, "", bad("invalid_scope", err.(*Error).Description)
	}
	now := db.Now()
	d = Device{App: a, Scopes: scopes, Addr: addr, Since: now, Until: now.Add(deviceLife), Interval: deviceWait}
	secret = account.NewSecret(devicePrefix)
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		var waiting, its int
		err := tx.QueryRow(ctx, `
			SELECT count(*), COALESCE(SUM(CASE WHEN network = $2 THEN 1 ELSE 0 END), 0) FROM oauth_devices WHERE expires_at > $1`,
			now, network).Scan(&waiting, &its)
		if err != nil {
			return err
		}
		if its >= maxDevicesNetwork {
			return &Error{
				"temporarily_unavailable", "Too many devices of your network wait for approval; try again in a minute",
				http.StatusTooManyRequests,
			}
		}
		if waiting >= maxDevices {
			return &Error{"temporarily_unavailable", "Too many devices wait for approval; try again in a minute", http.StatusServiceUnavailable}
		}
		d.Code = newUserCode() // 20^8 of them: two alike among those that wait are an error of the unique index, once in a million years
		_, err = tx.Exec(ctx, `
			INSERT INTO oauth_devices (hash, user_code, app_id, scopes, addr, created_at, expires_at, wait, polled_at, status, user_id,
			owner_id, granted, sites, grant_expires_at, network)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 'pending', '', '', '', '', 0, $9)`,
			digest(secret), d.Code, a.ID, scopes.String(), addr, now, d.Until, deviceWait.Milliseconds(), network)
		return err
	})
	var refused *Error
	if errors.As(err, &refused) {
		return Device{}, "", refused
	}
	if err != nil {
		return Device{}, "", fmt.Errorf("begin device: %w", err)
	}
	return d, secret, nil
}

// FormatUserCode writes a code as people read it: BCDF-GHJK.
func FormatUserCode(code string) string { return code[:len(code)/2] + "-" + code[len(code)/2:] }

// normalUserCode is a code as it was typed, in the stored form.
func normalUserCode(typed string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(userCodeLetters, r) {
			return r
		}
		return -1
	}, strings.ToUpper(typed[:min(len(typed), 40)]))
}

var errDevice = fault.New(fault.NotFound, "unknown_device_code", "Unknown or expired code",
	"codes work for 10 minutes; start again on the device")

// Device returns the request whose code a person typed. Callers bound how often they may guess.
func (s *Server) Device(ctx context.Context, typed string) (Device, error) {
	var d Device
	var app AppID
	var scopes, status string
	code := normalUserCode(typed)
	err := s.c.DB.QueryRow(ctx, `
		SELECT user_code, app_id, scopes, addr, created_at, expires_at, status FROM oauth_devices WHERE user_code = $1 AND expires_at > $2`,
		code, db.Now()).Scan(&d.Code, &app, &scopes, &d.Addr, &d.Since, &d.Until, &status)
	if errors.Is(err, sql.ErrNoRows) || err == nil && status != "pending" {
		return Device{}, errDevice
	}
	if err != nil {
		return Device{}, fmt.Errorf("find device: %w", err)
	}
	d.Scopes = splitScopes(scopes)
	d.App, err = s.find(ctx, s.c.DB, app)
	return d, err
}

// DecideDeviceTx allows a device what the person consents to, or refuses it (nil). It works once.
func (s *Server) DecideDeviceTx(ctx context.Context, tx *db.Tx, by account.Caller, d Device, c *Consent) error {
	status, granted, sites, expires := "denied", "", "", db.Time(0)
	if c != nil {
		if err := c.check(d.Scopes); err != nil {
			return err
		}
		if err := s.allowed(ctx, tx, by.Owner, d.App.ID); err != nil {
			return err
		}
		if err := s.c.Limits.RequireTx(ctx, tx, by.Owner, limits.OAuthGrants, 1); err != nil {
			return err
		}
		status, granted, sites, expires = "approved", c.Scopes.String(), id.Join(c.Sites), c.Expires
	}
	n, err := tx.Exec(ctx, `
		UPDATE oauth_devices SET status = $2, user_id = $3, owner_id = $4, granted = $5, sites = $6, grant_expires_at = $7, provider_id = $9
		WHERE user_code = $1 AND status = 'pending' AND expires_at > $8`, d.Code, status, by.User, by.Owner, granted, sites, expires,
		db.Now(), by.Through)
	if err != nil {
		return fmt.Errorf("decide device: %w", err)
	}
	if n == 0 {
		return errDevice
	}
	return nil
}

// PollDevice is a device's question whether it was approved (RFC 8628 §3.4): once it was, the answer are
// tokens for the API, exactly once. The error is an *Error, or the database's.
func (s *Server) PollDevice(ctx context.Context, a App, secret string, resources ...string) (t Tokens, err error) {
	if !s.isFor(ForAPI, resources) {
		return Tokens{}, s.errTarget()
	}
	var refused *Error
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		t, refused = Tokens{}, errGrant
		var app AppID
		var user account.UserID
		var owner account.OwnerID
		var status, granted, sites string
		var c Consent
		var expires, polled db.Time
		var wait int64
		now := db.Now()
		err := tx.QueryRow(ctx, `
			UPDATE oauth_devices SET hash = hash WHERE hash = $1 AND app_id = $2
			RETURNING app_id, status, user_id, owner_id, granted, sites, grant_expires_at, expires_at, polled_at, wait, provider_id`,
			digest(secret), a.ID).
			Scan(&app, &status, &user, &owner, &granted, &sites, &c.Expires, &expires, &polled, &wait, &c.through)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if expires <= now {
			refused = bad("expired_token", "The device code has expired; start again")
			return nil
		}
		if polled != 0 && int64(now-polled) < wait-1000 { // a second for clocks and networks
			refused = bad("slow_down", "Poll five seconds less often")
			_, err := tx.Exec(ctx, `UPDATE oauth_devices SET polled_at = $2, wait = $3 WHERE hash = $1`,
				digest(secret), now, min(wait+deviceWait.Milliseconds(), 60_000))
			return err
		}
		switch status {
		case "pending":
			refused = bad("authorization_pending", "Nobody has approved the device yet")
			_, err := tx.Exec(ctx, `UPDATE oauth_devices SET polled_at = $2 WHERE hash = $1`, digest(secret), now)
			return err
		case "denied":
			refused = bad("access_denied", "The person refused")
			return nil
		case "approved":
		default:
			return nil
		}
		if _, err := tx.Exec(ctx, `UPDATE oauth_devices SET status = 'used' WHERE hash = $1`, digest(secret)); err != nil {
			return err
		}
		c.Scopes, c.Sites = splitScopes(granted), id.Split[id.Site](sites)
		var id GrantID
		if id, t, err = s.beginTx(ctx, tx, a.ID, user, owner, c, ForAPI); err != nil {
			return err
		}
		refused = nil
		return s.c.Accounts.AuditTx(ctx, tx, audit.Actor{User: user, Owner: owner, App: string(a.ID), Via: a.Name}, audit.Event{
			Action: "app.authorized", Subject: string(id), Detail: a.Name + " on a device (" + c.Scopes.String() + ")",
		})
	})
	return outcome(t, refused, err, "poll device")
}
