-- +goose Up

-- Written by package notify: channels that mail to an address other than the account's;
-- their url is the address, sealed.
ALTER TABLE notify_channels ADD COLUMN confirmed_at BIGINT NOT NULL DEFAULT 0; -- when its recipient said yes; 0: not yet, or nobody needs to

-- Written by package notify: confirmation emails of the last day.
CREATE TABLE notify_asked (
  id       TEXT PRIMARY KEY,
  owner_id TEXT NOT NULL,
  digest   TEXT NOT NULL,        -- SHA-256 of the address
  at       BIGINT NOT NULL
);
CREATE INDEX notify_asked_owner ON notify_asked (owner_id, at);
CREATE INDEX notify_asked_digest ON notify_asked (digest, at);

-- Written by package notify: recipients that want no emails of an owner.
CREATE TABLE notify_refused (
  owner_id TEXT NOT NULL,
  digest   TEXT NOT NULL,
  at       BIGINT NOT NULL,
  PRIMARY KEY (owner_id, digest)
);
