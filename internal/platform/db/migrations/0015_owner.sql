-- +goose Up

-- Written by package account (and limits): what things belong to. Today each owner is the personal
-- account of one user.
CREATE TABLE owners (
  id         TEXT PRIMARY KEY,
  kind       TEXT NOT NULL,    -- personal
  created_at BIGINT NOT NULL
);
INSERT INTO owners (id, kind, created_at) SELECT 'own_' || substr(id, 5), 'personal', created_at FROM users;

-- Each user's personal account.
ALTER TABLE users ADD COLUMN owner_id TEXT NOT NULL DEFAULT '';
UPDATE users SET owner_id = 'own_' || substr(id, 5);
CREATE UNIQUE INDEX users_owner ON users (owner_id);

-- A key acts for an owner, on behalf of the user who made it.
DROP INDEX api_keys_owner;
ALTER TABLE api_keys RENAME COLUMN owner_id TO user_id;
ALTER TABLE api_keys ADD COLUMN owner_id TEXT NOT NULL DEFAULT '';
UPDATE api_keys SET owner_id = 'own_' || substr(user_id, 5);
CREATE INDEX api_keys_owner ON api_keys (owner_id, id);
CREATE INDEX api_keys_user ON api_keys (user_id);

-- Whose things it was done to; empty: nobody's.
ALTER TABLE audit ADD COLUMN owner_id TEXT NOT NULL DEFAULT '';
UPDATE audit SET owner_id = 'own_' || substr(user_id, 5) WHERE user_id <> '';
CREATE INDEX audit_owner ON audit (owner_id, id) WHERE owner_id <> '';

UPDATE webhooks SET owner_id = 'own_' || substr(owner_id, 5);
UPDATE webhook_events SET owner_id = 'own_' || substr(owner_id, 5);
UPDATE sites SET owner_id = 'own_' || substr(owner_id, 5);
UPDATE site_counts SET owner_id = 'own_' || substr(owner_id, 5);
UPDATE slugs SET owner_id = 'own_' || substr(owner_id, 5);
UPDATE deploy_hooks SET owner_id = 'own_' || substr(owner_id, 5);
UPDATE deployments SET owner_id = 'own_' || substr(owner_id, 5);
UPDATE domains SET owner_id = 'own_' || substr(owner_id, 5);
UPDATE domain_tokens SET owner_id = 'own_' || substr(owner_id, 5);
UPDATE domain_releases SET owner_id = 'own_' || substr(owner_id, 5);
