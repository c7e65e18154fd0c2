package idempotency

// Purge runs one cleanup round of Run.
var Purge = (*Answers).purge
