package sso

type Claims = claims

// Verified reports whether the claims' email address counts as verified.
func Verified(c Claims, kind Kind) bool { return c.verified(kind) }
