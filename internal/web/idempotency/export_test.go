package idempotency

// Purge is one round of Run.
var Purge = (*Answers).purge
