package account

// Digest lets tests insert rows that only a race could create.
var Digest = digest
