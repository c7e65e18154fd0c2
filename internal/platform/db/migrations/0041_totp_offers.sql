-- +goose Up

-- Written by package account: second factors that were offered to one session and not yet shown to work.
CREATE TABLE totp_offers (
  hash       TEXT PRIMARY KEY,      -- SHA-256 of the offer's token, hex
  user_id    TEXT NOT NULL,
  session_id TEXT NOT NULL,
  secret     TEXT NOT NULL,         -- sealed
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX totp_offers_session ON totp_offers (session_id, created_at);
CREATE INDEX totp_offers_end ON totp_offers (expires_at);

-- Offers used to stand here, one per user for every session.
DELETE FROM second_factors WHERE NOT confirmed;
