-- +goose Up

-- Written by package account.
CREATE TABLE users (
  id         TEXT PRIMARY KEY,
  email      TEXT NOT NULL UNIQUE,  -- lower case
  password   TEXT NOT NULL,         -- argon2id in PHC form; empty: none set yet
  admin      BOOLEAN NOT NULL,
  created_at BIGINT NOT NULL
);

-- Written by package account.
CREATE TABLE setup_links (
  hash       TEXT PRIMARY KEY,                -- SHA-256 of the token, hex
  user_id    TEXT REFERENCES users (id),      -- whose password it sets; NULL: makes the first admin
  expires_at BIGINT NOT NULL
);
CREATE INDEX setup_links_user ON setup_links (user_id);

-- Written by package account.
CREATE TABLE api_keys (
  id         TEXT PRIMARY KEY,
  owner_id   TEXT NOT NULL REFERENCES users (id),
  hash       TEXT NOT NULL UNIQUE,  -- SHA-256 of the secret, hex
  hint       TEXT NOT NULL,         -- the secret's first characters, to tell keys apart
  name       TEXT NOT NULL,
  scopes     TEXT NOT NULL,         -- separated by spaces
  sites      TEXT NOT NULL,         -- ids separated by spaces; empty: all
  nets       TEXT NOT NULL,         -- CIDRs separated by spaces; empty: anywhere
  expires_at BIGINT NOT NULL,       -- 0: never
  created_at BIGINT NOT NULL,
  used_at    BIGINT NOT NULL,
  used_addr  TEXT NOT NULL
);
CREATE INDEX api_keys_owner ON api_keys (owner_id, id);
