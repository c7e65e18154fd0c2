-- +goose Up

-- The token of the TXT record that proved the name last. It travels with the domain to another owner, so that the record
-- which the owner before left behind proves nothing for them. Empty: proven in another way, or before this was noted.
ALTER TABLE domains ADD COLUMN proof_token TEXT NOT NULL DEFAULT '';
