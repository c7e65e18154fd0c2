package sso

// Claims holds the claims about a user.
type Claims = claims

// Verified reports whether the claims' email address counts as verified.
func Verified(c Claims, kind Kind) bool { return c.verified(kind) }
