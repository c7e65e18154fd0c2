package sso

// Claims holds the claims about a person.
type Claims = claims

// Verified reports whether an address counts as verified.
func Verified(c Claims, kind Kind) bool { return c.verified(kind) }
