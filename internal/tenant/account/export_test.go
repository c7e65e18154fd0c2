package account

// HOTP is for tests that play the authenticator app; TestHOTP holds it to the RFC's vectors.
var HOTP = hotp

// Digest is for tests that put a row where a race would.
var Digest = digest
