package account

// Digest is for tests that put a row where a race would.
var Digest = digest
