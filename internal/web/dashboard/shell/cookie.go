package shell

import (
	"encoding/base64"
	"net/http"
	"time"

	"slipway/internal/tenant/account"
)

// The cookies' names.
const (
	SessionCookie = "slipway"
	flashCookie   = "slipway-flash"
	ThemeCookie   = "slipway-theme"
)

// cookieName adds the __Host- prefix, which guarantees that no other host set the cookie (RFC 6265bis §4.1.3.2). It
// requires https. With an http base URL, for loopback and trials, names have no prefix, because browsers refuse Secure
// cookies there.
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

// SignedIn returns the cookie of a new session.
func (d *Shell) SignedIn(token string) *http.Cookie {
	return d.Cookie(SessionCookie, token, account.Lifetime)
}

// ReadCookie returns the value of one of the dashboard's cookies, or "".
func (d *Shell) ReadCookie(r *http.Request, name string) string {
	c, err := r.Cookie(d.cookieName(name))
	if err != nil {
		return ""
	}
	return c.Value
}

// flashCookie returns the cookie with a message for the next page, where it is shown as plain text.
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
