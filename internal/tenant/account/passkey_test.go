package account_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/descope/virtualwebauthn"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

// device is a browser with an authenticator.
type device struct {
	t    *testing.T
	rp   virtualwebauthn.RelyingParty
	auth virtualwebauthn.Authenticator
	cred virtualwebauthn.Credential
}

// wholeKey is the length of a P-256 public key in COSE (RFC 9053, section 7.1.1).
const wholeKey = 77

func newDevice(t *testing.T, origin string) *device {
	cred := virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2)
	for len(cred.Key.AttestationData()) < wholeKey { // the library drops leading zeros of coordinates, one time in 128
		cred = virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2)
	}
	return &device{
		t,
		virtualwebauthn.RelyingParty{Name: "Slipway", ID: "slipway.test", Origin: origin},
		virtualwebauthn.NewAuthenticator(),
		cred,
	}
}

func options(t *testing.T, c account.Ceremony) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"publicKey": c.Options})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (d *device) create(c account.Ceremony) []byte {
	d.t.Helper()
	o, err := virtualwebauthn.ParseAttestationOptions(options(d.t, c))
	if err != nil {
		d.t.Fatal(err)
	}
	d.auth.Options.UserHandle = []byte(o.UserID)
	return []byte(virtualwebauthn.CreateAttestationResponse(d.rp, d.auth, d.cred, *o))
}

func (d *device) sign(c account.Ceremony) []byte {
	d.t.Helper()
	o, err := virtualwebauthn.ParseAssertionOptions(options(d.t, c))
	if err != nil {
		d.t.Fatal(err)
	}
	return []byte(virtualwebauthn.CreateAssertionResponse(d.rp, d.auth, d.cred, *o))
}

func TestPasskey(t *testing.T) {
	t.Parallel()
	a, d := guarded(t)
	ctx := t.Context()
	ada, eve := enrol(t, a, "ada@example.test"), enrol(t, a, "eve@example.test")
	me := audit.Actor{User: ada.ID, Addr: here}
	phone := newDevice(t, "https://slipway.test")

	offer, err := a.OfferPasskey(ctx, ada.ID)
	if err != nil {
		t.Fatal(err)
	}
	answer := phone.create(offer)
	if err := a.AddPasskey(ctx, audit.Actor{User: eve.ID}, "stolen", offer.Token, answer); !fault.Is(err, fault.Invalid) {
		t.Fatal("a ceremony ends for another user:", err)
	}
	if err := a.AddPasskey(ctx, me, "", offer.Token, answer); !fault.Is(err, fault.Invalid) {
		t.Fatal(err)
	}
	if err := a.AddPasskey(ctx, me, "Phone", offer.Token, answer); err != nil {
		t.Fatal(err)
	}
	if err := a.AddPasskey(ctx, me, "Phone", offer.Token, answer); !fault.Is(err, fault.Invalid) {
		t.Error("an answer works twice:", err)
	}
	foreign, err := a.OfferPasskey(ctx, ada.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.AddPasskey(
		ctx,
		me,
		"Evil",
		foreign.Token,
		newDevice(t, "https://evil.test").create(foreign),
	); !fault.Is(err, fault.Invalid) {
		t.Error("another origin's passkey is taken:", err)
	}
	list, err := a.ListPasskeys(ctx, ada.ID)
	if err != nil || len(list) != 1 || list[0].Name != "Phone" || list[0].UsedAt != 0 {
		t.Fatalf("%+v, %v", list, err)
	}

	phone.auth.AddCredential(phone.cred)
	ask := func() account.Ceremony {
		c, err := a.AskPasskey(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	asked := ask()
	signed := phone.sign(asked)
	s, token, err := a.SignInPasskey(ctx, asked.Token, signed, laptop)
	if err != nil || s.User != ada.ID || s.Pending || s.Method != account.ByPasskey || !alive(t, a, token) {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, _, err := a.SignInPasskey(ctx, asked.Token, signed, laptop); !fault.Is(err, fault.Invalid) {
		t.Error("an answer works twice:", err)
	}
	other := ask()
	if _, _, err := a.SignInPasskey(ctx, other.Token, signed, laptop); !fault.Is(err, fault.Unauthorized) {
		t.Error("an old answer works for a new challenge:", err)
	}
	evil := *phone
	evil.rp.Origin = "https://evil.test"
	phished := ask()
	if _, _, err := a.SignInPasskey(ctx, phished.Token, evil.sign(phished), laptop); !fault.Is(err, fault.Unauthorized) {
		t.Error("a signature for another origin is accepted:", err)
	}
	unverified := *phone
	unverified.auth.Options.UserNotVerified = true
	asked = ask()
	if _, _, err := a.SignInPasskey(ctx, asked.Token, unverified.sign(asked), laptop); !fault.Is(err, fault.Unauthorized) {
		t.Error("a passkey that did not check its user works:", err)
	}
	for _, nonsense := range []string{"", "{}", "null", `{"id":5}`, strings.Repeat("[", 10000), string(answer)} {
		asked := ask()
		if _, _, err := a.SignInPasskey(ctx, asked.Token, []byte(nonsense), laptop); fault.As(err) == nil {
			t.Errorf("answer %.20q: %v, want a fault", nonsense, err)
		}
	}
	if list, err := a.ListPasskeys(ctx, ada.ID); err != nil || list[0].UsedAt == 0 {
		t.Errorf("the use was not noted: %+v, %v", list, err)
	}
	asked = ask()
	mine, mineToken, err := a.SignInPasskey(ctx, asked.Token, phone.sign(asked), laptop)
	if err != nil {
		t.Fatal(err)
	}
	write(t, d, `UPDATE sessions SET method = 'totp' WHERE id = $1`, s.ID) // as if another factor confirmed the session
	_, byPassword := signIn(t, a, ada.Email)
	write(t, d, `UPDATE sessions SET method = 'passkey', passkey_id = 'psk_other' WHERE id = (SELECT id FROM sessions WHERE user_id = $1 AND method = 'password')`,
		ada.ID)
	remove := func(owner account.UserID) error {
		return d.Write(ctx, func(tx *db.Tx) error { return a.RemovePasskeyTx(ctx, tx, owner, list[0].ID, mine.ID) })
	}
	if err := remove(eve.ID); !fault.Is(err, fault.NotFound) {
		t.Error("a stranger removed a passkey:", err)
	}
	if !alive(t, a, token) {
		t.Error("a session ended before its passkey was removed")
	}
	if err := remove(ada.ID); err != nil {
		t.Fatal(err)
	}
	if alive(t, a, token) || !alive(t, a, mineToken) || !alive(t, a, byPassword) {
		t.Error("want the session that began with the removed passkey to end, and the one that asked and that of another passkey to go on")
	}
	asked = ask()
	if _, _, err := a.SignInPasskey(ctx, asked.Token, phone.sign(asked), laptop); !fault.Is(err, fault.Unauthorized) {
		t.Error("a removed passkey works:", err)
	}
}

// Registering passkeys concurrently can't exceed the limit of passkeys.
func TestPasskeysOfferedAtOnce(t *testing.T) {
	t.Parallel()
	a, _ := guarded(t)
	ada := enrol(t, a, "ada@example.test")
	const most = 20
	var offers []account.Ceremony
	for range most + 2 {
		c, err := a.OfferPasskey(t.Context(), ada.ID)
		if err != nil {
			t.Fatal(err)
		}
		offers = append(offers, c)
	}
	for i, c := range offers {
		err := a.AddPasskey(t.Context(), audit.Actor{
			User: ada.ID,
			Addr: here,
		}, "Key", c.Token, newDevice(t, "https://slipway.test").create(c))
		if i < most && err != nil || i >= most && !fault.Is(err, fault.Conflict) {
			t.Errorf("passkey %d: %v", i+1, err)
		}
	}
}

func TestPasskeysNeedAName(t *testing.T) {
	t.Parallel()
	for site, want := range map[string]bool{
		"https://slipway.test": true, "http://localhost:8080": true, "https://slipway.test:8443": true,
		"http://127.0.0.1:8080": false, "http://slipway.test": false, "https://[::1]": false, "https://203.0.113.7": false, "": false,
	} {
		if got := account.New(account.Config{Site: site}).Passkeys(); got != want {
			t.Errorf("%q: %v, want %v", site, got, want)
		}
	}
}

// A user's own passkey raises a session that began with a password. Another user's passkey doesn't.
func TestStepUpWithAPasskey(t *testing.T) {
	t.Parallel()
	a, _ := guarded(t)
	ctx := t.Context()
	ada, eve := enrol(t, a, "ada@example.test"), enrol(t, a, "eve@example.test")
	add := func(u account.User, s account.Session) *device {
		dev := newDevice(t, "https://slipway.test")
		c, err := a.OfferPasskey(ctx, u.ID)
		if err == nil {
			err = a.AddPasskey(ctx, audit.Actor{User: u.ID, Session: s.ID}, "Key", c.Token, dev.create(c))
		}
		if err != nil {
			t.Fatal(err)
		}
		return dev
	}
	method := func(u account.User, id account.SessionID) account.Method {
		list, err := a.Sessions(ctx, u.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.ID == id {
				return s.Method
			}
		}
		return ""
	}
	first, _ := signIn(t, a, "ada@example.test")
	evil, _ := signIn(t, a, "eve@example.test")
	hers, his := add(ada, first), add(eve, evil)
	if m := method(ada, first.ID); m != account.ByPasskey {
		t.Errorf("the session that added the first passkey is by %s", m)
	}
	s, _ := signIn(t, a, "ada@example.test")
	raise := func(dev *device) error {
		c, err := a.AskPasskey(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return a.StepUpPasskey(ctx, audit.Actor{User: ada.ID, Session: s.ID}, c.Token, dev.sign(c))
	}
	if err := raise(his); !fault.Is(err, fault.Unauthorized) || method(ada, s.ID) != account.ByPassword {
		t.Errorf("another user's passkey: %v, by %s", err, method(ada, s.ID))
	}
	if err := raise(hers); err != nil || method(ada, s.ID) != account.ByPasskey {
		t.Errorf("her passkey: %v, by %s", err, method(ada, s.ID))
	}
}
