-- +goose Up

-- Owners that are being deleted with what they have: nothing is created for them any more.
CREATE VIEW ending_owners AS SELECT owner_id FROM teams WHERE deleting_at > 0;

-- Written by package account: mails of the last day to addresses that need not be a user's, such as invitations.
CREATE TABLE address_mails (
  owner_id TEXT NOT NULL,                   -- who caused them
  digest   TEXT NOT NULL,                   -- SHA-256 of the address, hex
  at       BIGINT NOT NULL
);
CREATE INDEX address_mails_owner ON address_mails (owner_id, at);
CREATE INDEX address_mails_address ON address_mails (digest, at);
