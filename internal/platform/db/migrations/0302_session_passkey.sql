-- +goose Up

-- The passkey that a session began with: removing it ends the session. Empty for other ways to sign in, and for sessions of versions before.
ALTER TABLE sessions ADD COLUMN passkey_id TEXT NOT NULL DEFAULT '';
