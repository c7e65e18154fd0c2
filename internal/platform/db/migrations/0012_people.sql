-- +goose Up

-- Who is suspended gets in by nothing: no password, passkey, link, session, key or deploy hook.
ALTER TABLE users ADD COLUMN suspended_at BIGINT NOT NULL DEFAULT 0;   -- 0: not
ALTER TABLE users ADD COLUMN suspended_why TEXT NOT NULL DEFAULT '';   -- what they are told, once they have shown who they are

-- A link that went to the user's address because somebody asked for it; a newer one takes its place.
ALTER TABLE setup_links ADD COLUMN mailed BOOLEAN NOT NULL DEFAULT FALSE;

-- With what something was done, in words: the key's name may be gone by the time the line is read.
ALTER TABLE audit ADD COLUMN via TEXT NOT NULL DEFAULT '';
CREATE INDEX audit_key ON audit (key_id, id) WHERE key_id <> '';
