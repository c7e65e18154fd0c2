package oauth_test

import (
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
)

// A device is approved once, must respect the polling interval, and its code expires.
func TestDeviceGrant(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	decide := func(d oauth.Device, c *oauth.Consent) error {
		return w.db.Write(t.Context(), func(tx *db.Tx) error { return w.DecideDeviceTx(t.Context(), tx, w.ada.Caller(), d, c) })
	}
	begin := func() (oauth.Device, string) {
		d, secret, err := w.BeginDevice(t.Context(), w.app, "sites:read deployments:write", "203.0.113.9", "203.0.113.9")
		must(t, err)
		return d, secret
	}
	poll := func(secret string) (oauth.Tokens, error) { return w.PollDevice(t.Context(), w.app, secret) }
	d, secret := begin()
	if len(d.Code) != 8 || strings.Trim(d.Code, "BCDFGHJKLMNPQRSTVWXZ") != "" {
		t.Errorf("the code is %s", d.Code)
	}
	_, err := poll(secret)
	wantCode(t, "before anybody decided", err, "authorization_pending")
	_, err = poll(secret)
	wantCode(t, "at once again", err, "slow_down")
	found, err := w.Device(t.Context(), " "+strings.ToLower(oauth.FormatUserCode(d.Code)))
	if err != nil || found.App.ID != w.app.ID || found.Addr != "203.0.113.9" {
		t.Fatalf("found %+v, %v", found, err)
	}
	if err := decide(found, &oauth.Consent{Scopes: account.Scopes{account.EnvRead}}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a wider consent: %v", err)
	}
	must(t, decide(found, &oauth.Consent{Scopes: account.Scopes{account.SitesRead}}))
	if err := decide(found, nil); !fault.Is(err, fault.NotFound) {
		t.Errorf("decided twice: %v", err)
	}
	other, _ := w.create(oauth.NewApp{Name: "Other"})
	_, err = w.PollDevice(t.Context(), other, secret)
	wantCode(t, "another app", err, "invalid_grant")
	w.later(11 * time.Second)
	got, err := poll(secret)
	must(t, err)
	if c, err := w.Authenticate(t.Context(), got.Access, here); err != nil || c.Scopes.String() != "sites:read" {
		t.Errorf("the caller is %+v, %v", c, err)
	}
	_, err = poll(secret)
	wantCode(t, "redeemed twice", err, "invalid_grant")

	d, secret = begin()
	must(t, decide(d, nil))
	_, err = poll(secret)
	wantCode(t, "refused", err, "access_denied")

	d, secret = begin()
	w.later(11 * time.Minute)
	_, err = poll(secret)
	wantCode(t, "expired", err, "expired_token")
	if _, err := w.Device(t.Context(), d.Code); !fault.Is(err, fault.NotFound) {
		t.Errorf("an expired code is found: %v", err)
	}
	for _, typed := range []string{"", "!!!!", strings.Repeat("B", 1000)} {
		if _, err := w.Device(t.Context(), typed); !fault.Is(err, fault.NotFound) {
			t.Errorf("%.10q: %v", typed, err)
		}
	}
	_, _, err = w.BeginDevice(t.Context(), w.app, "*", "", "")
	wantCode(t, "all rights", err, "invalid_scope")
	cli, err := w.Client(t.Context(), oauth.CLI, "")
	must(t, err)
	if _, _, err := w.BeginDevice(t.Context(), cli, "*", "", ""); err != nil {
		t.Errorf("the command line may not ask for all: %v", err)
	}
}

// Devices of one network don't use up the limit of other networks, and expired ones free their slots.
func TestDevicesOfOneNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	begin := func(network string) error {
		_, _, err := w.BeginDevice(t.Context(), w.app, "sites:read", "2001:db8::1", network)
		return err
	}
	for range 100 {
		must(t, begin("2001:db8::/48"))
	}
	wantCode(t, "one more of the network", begin("2001:db8::/48"), "temporarily_unavailable")
	must(t, begin("2001:db8:1::/48"))
	w.later(11 * time.Minute)
	must(t, begin("2001:db8::/48"))
}
