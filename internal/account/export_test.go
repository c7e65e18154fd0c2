package account

// HOTP is for tests that play the authenticator app; TestHOTP holds it to the RFC's vectors.
var HOTP = hotp
