-- +goose Up
-- Apps that registered themselves (RFC 7591): from which network. Empty: every other app.
ALTER TABLE oauth_apps ADD COLUMN registered_from TEXT NOT NULL DEFAULT '';
CREATE INDEX oauth_apps_registered ON oauth_apps (registered_from, created_at);
