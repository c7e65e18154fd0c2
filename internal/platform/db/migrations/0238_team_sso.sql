-- +goose Up

-- The role of people who come to a team by its provider alone; empty: they need an invitation.
ALTER TABLE sso_providers ADD COLUMN join_role TEXT NOT NULL DEFAULT '';
CREATE INDEX sso_providers_owner ON sso_providers (owner_id);

DROP VIEW linked_users;

-- Written by package sso: accounts elsewhere that belong to a user. One counts for the owner whose provider it was proven
-- with: a team's client at an issuer says nothing about accounts that were linked with the operator's client, or another team's.
CREATE TABLE sso_identities_new (
  owner_id    TEXT NOT NULL DEFAULT '',  -- of the provider; empty: the operator's
  issuer      TEXT NOT NULL,
  subject     TEXT NOT NULL,      -- the issuer's id of the person
  id          TEXT NOT NULL UNIQUE,
  user_id     TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  email       TEXT NOT NULL,      -- as the issuer told it last; shown, never compared
  created_at  BIGINT NOT NULL,
  used_at     BIGINT NOT NULL,    -- 0: never
  PRIMARY KEY (owner_id, issuer, subject)
);
INSERT INTO sso_identities_new (issuer, subject, id, user_id, email, created_at, used_at)
  SELECT issuer, subject, id, user_id, email, created_at, used_at FROM sso_identities;
DROP TABLE sso_identities;
ALTER TABLE sso_identities_new RENAME TO sso_identities;
CREATE INDEX sso_identities_of_user ON sso_identities (user_id);
CREATE VIEW linked_users AS SELECT DISTINCT user_id FROM sso_identities;

-- Written by package sso: email domains that teams claim for a provider of theirs.
CREATE TABLE sso_domains (
  id            TEXT PRIMARY KEY,
  owner_id      TEXT NOT NULL,
  provider_id   TEXT NOT NULL,
  name          TEXT NOT NULL,    -- lower case, as the DNS has it
  token         TEXT NOT NULL,    -- that the TXT record must hold
  created_at    BIGINT NOT NULL,
  verified_at   BIGINT NOT NULL,  -- 0: it isn't
  missing_since BIGINT NOT NULL,  -- the record of a verified domain; 0: it is there
  checked_at    BIGINT NOT NULL,  -- 0: never
  next_check    BIGINT NOT NULL,  -- 0: none by itself
  problem       TEXT NOT NULL,
  UNIQUE (owner_id, name)
);
CREATE UNIQUE INDEX sso_domains_verified ON sso_domains (name) WHERE verified_at > 0;
CREATE INDEX sso_domains_due ON sso_domains (next_check) WHERE next_check > 0;
