package shell

import (
	"encoding/base64"
	"net/http"
	"time"

	"slipway/internal/tenant/account"
)

// The cookies, by what they hold.
const (
	SessionCookie = "slipway"
	flashCookie   = "slipway-flash"
	ThemeCookie   = "slipway-theme"
)

// cookieName adds the __Host- prefix (RFC 6265bis §4.1.3.2), by which a browser promises
// that no other host set it. It needs https; a plain base URL, meant for loopback and
// trials, gets plain names, because browsers refuse Secure cookies there.
func (d *Shell) cookieName(name string) string {
	if d.secure {
		return "__Host-" + name
	}
	return name
}

func (d *Shell) Cookie(name, value string, life time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: d.cookieName(name), Value: value, Path: "/", MaxAge: int(life / time.Second),
		Secure: d.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

func (d *Shell) NoCookie(name string) *http.Cookie {
	c := d.Cookie(name, "", 0)
	c.MaxAge = -1
	return c
}

// SignedIn is the cookie of a new session.
func (d *Shell) SignedIn(token string) *http.Cookie {
	return d.Cookie(SessionCookie, token, account.Lifetime)
}

// ReadCookie returns the value of one of our cookies; empty: there is none.
func (d *Shell) ReadCookie(r *http.Request, name string) string {
	c, err := r.Cookie(d.cookieName(name))
	if err != nil {
		return ""
	}
	return c.Value
}

// A flash is a sentence for the next page. It is shown as text, whatever it holds.
func (d *Shell) flashCookie(text string) *http.Cookie {
	return d.Cookie(flashCookie, base64.RawURLEncoding.EncodeToString([]byte(text)), time.Minute)
}

func (d *Shell) readFlash(r *http.Request) string {
	text, err := base64.RawURLEncoding.DecodeString(d.ReadCookie(r, flashCookie))
	if err != nil || len(text) > 500 {
		return ""
	}
	return string(text)
}

func (d *Shell) theme(r *http.Request) string {
	switch t := d.ReadCookie(r, ThemeCookie); t {
	case "light", "dark":
		return t
	}
	return "system"
}
