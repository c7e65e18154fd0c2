-- +goose Up

-- Written by package account: people who asked to sign up and have not proved that the address is theirs. There is no user until they do.
CREATE TABLE sign_ups (
  id         TEXT PRIMARY KEY,  -- sgn_...
  email      TEXT NOT NULL,
  hash       TEXT NOT NULL,     -- of the link's token; '' until it is mailed
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX sign_ups_hash ON sign_ups (hash) WHERE hash <> '';
CREATE INDEX sign_ups_email ON sign_ups (email);
CREATE INDEX sign_ups_created ON sign_ups (created_at);
